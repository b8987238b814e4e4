{{- define "steplane.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Of both: root, the chart's top; component, gateway or epp. */}}
{{- define "steplane.selector" -}}
app.kubernetes.io/name: steplane
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "steplane.labels" -}}
{{ include "steplane.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* Gateways and pickers alike. */}}
{{- define "steplane.ownSelector" -}}
app.kubernetes.io/name: steplane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Who may reach health, metrics and the API. */}}
{{- define "steplane.adminIngress" -}}
- ports: [{port: admin, protocol: TCP}]
  from:
    - podSelector: {}
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: {{ .Values.networkPolicy.monitoringNamespace }}}
    {{- with .Values.networkPolicy.admin }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}

{{/* Engines that the chart starts, of whatever pool. */}}
{{- define "steplane.engineSelector" -}}
app.kubernetes.io/name: engine
app.kubernetes.io/instance: {{ .Release.Name }}
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

{{/* The same for endpoint pickers: one process each, and where Envoy asks. */}}
{{- define "steplane.eppConfig" -}}
{{- $epp := dict "listen" "0.0.0.0:9002" }}
{{- if .Values.epp.tlsSecret }}
{{- $_ := set $epp "tls" (dict "certificate" "/etc/steplane-tls/tls.crt" "key" "/etc/steplane-tls/tls.key") }}
{{- end }}
{{- toYaml (mergeOverwrite (include "steplane.config" . | fromYaml) (dict "workers" 1 "epp" $epp)) }}
{{- end }}

{{/* Booked step time of a pool as a share of all its replicas' budgets: PromQL. Each gateway books for itself, so they add up. */}}
{{- define "steplane.budgetUse" -}}
sum(steplane_booked_step_seconds{pool="{{ . }}"}) / (max(steplane_step_budget_seconds{pool="{{ . }}"}) * count(max by (replica) (steplane_replica_up{pool="{{ . }}"}) == 1))
{{- end }}
