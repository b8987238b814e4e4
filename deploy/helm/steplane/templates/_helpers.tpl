{{- define "steplane.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "steplane.selector" -}}
app.kubernetes.io/name: steplane
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end }}

{{- define "steplane.labels" -}}
{{ include "steplane.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "steplane.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "steplane.name" .) }}
{{- end }}

{{- define "steplane.feedTokenSecret" -}}
{{ .Values.feedTokenSecret | default (printf "%s-feed" (include "steplane.name" .)) }}
{{- end }}

{{/* The labels of a pool's pods: those of the chart's own engines, or the one that says so. */}}
{{- define "steplane.poolSelector" -}}
{{- if .pool.selector }}{{ .pool.selector }}{{ else }}steplane.io/pool={{ .name }}{{ end }}
{{- end }}

{{/* gateway.yaml: what the chart knows, and over it what the user says. */}}
{{- define "steplane.config" -}}
{{- $root := . }}
{{- $pools := dict }}
{{- range $name, $pool := .Values.pools }}
{{- $kubernetes := dict "resource" "pods" "selector" (include "steplane.poolSelector" (dict "name" $name "pool" $pool)) "port" ($pool.port | default 30000) }}
{{- if $pool.namespace }}{{- $_ := set $kubernetes "namespace" $pool.namespace }}{{- end }}
{{- $made := dict "discover" (dict "kubernetes" $kubernetes) "feed_token" "${STEPLANE_FEED_TOKEN}" }}
{{- $config := $pool.config | default dict }}
{{- if or $config.replicas $config.discover }}{{- $made = omit $made "discover" }}{{- end }}
{{- if and $pool.engine $pool.engine.engine }}{{- $_ := set $made "engine" $pool.engine.engine }}{{- end }}
{{- $_ := set $pools $name (mergeOverwrite $made (deepCopy $config)) }}
{{- end }}
{{- $made := dict "listen" "0.0.0.0:8080" "admin" (dict "listen" "0.0.0.0:8081") "workers" (int .Values.gateway.workers) "reload" (dict "watch" true) "pools" $pools }}
{{- $_ := set $made "timeouts" (dict "drain_delay_s" (int .Values.gateway.drainDelaySeconds) "drain_s" (int .Values.gateway.drainSeconds)) }}
{{- if .Values.redis.enabled }}
{{- $_ := set $made "state" (dict "redis" (dict "url" (printf "redis://%s-redis:6379/0" .Release.Name) "prefix" (include "steplane.name" .))) }}
{{- end }}
{{- toYaml (mergeOverwrite $made (deepCopy .Values.config)) }}
{{- end }}

{{/* Booked step time of a pool as a share of all its replicas' budgets: PromQL. Each gateway books for itself, so they add up. */}}
{{- define "steplane.budgetUse" -}}
sum(steplane_booked_step_seconds{pool="{{ . }}"}) / (max(steplane_step_budget_seconds{pool="{{ . }}"}) * count(max by (replica) (steplane_replica_up{pool="{{ . }}"}) == 1))
{{- end }}
