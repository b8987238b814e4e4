{{/*
The pod of a gateway or of an endpoint picker.
root: the chart's top. component: gateway or epp. args: of `steplane`. port: {name, number} for those whom it serves. config: name of
its ConfigMap. resources. tls: name of a Secret that it shows clients, or nothing.
*/}}
{{- define "steplane.pod" -}}
{{- $root := .root }}
{{- $settings := $root.Values.gateway }}
metadata:
  labels:
    {{- include "steplane.labels" (dict "root" $root "component" .component) | nindent 4 }}
    {{- with $settings.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with $settings.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "steplane.serviceAccount" $root }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $settings.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  # At SIGTERM it says 503 at /readyz, accepts for drainDelaySeconds and lets what runs end within drainSeconds: the drain that
  # a preStop hook would ask for.
  terminationGracePeriodSeconds: {{ add $settings.drainDelaySeconds $settings.drainSeconds 10 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  {{- with $settings.topologySpreadKeys }}
  topologySpreadConstraints:
    {{- range . }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "steplane.selector" (dict "root" $root "component" $.component) | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- with $settings.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $settings.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $settings.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: "{{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}"
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{- toYaml .args | nindent 8 }}
      ports:
        - {name: {{ .port.name }}, containerPort: {{ .port.number }}}
        - {name: admin, containerPort: 8081}
      env:
        - name: STEPLANE_FEED_TOKEN
          valueFrom: {secretKeyRef: {name: {{ include "steplane.feedTokenSecret" $root }}, key: token}}
        {{- with $settings.extraEnv }}{{ toYaml . | nindent 8 }}{{ end }}
      startupProbe: {httpGet: {path: /healthz, port: admin}, periodSeconds: 1, failureThreshold: 60}
      livenessProbe: {httpGet: {path: /healthz, port: admin}, periodSeconds: 5, timeoutSeconds: 3, failureThreshold: 6}
      readinessProbe: {httpGet: {path: /readyz, port: admin}, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 2}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {{- toYaml .resources | nindent 8 }}
      volumeMounts:
        # The folder, not the file: only so a change of the ConfigMap arrives, and is taken over (reload.watch).
        - {name: config, mountPath: /etc/steplane, readOnly: true}
        - {name: tmp, mountPath: /tmp}
        {{- if .tls }}
        - {name: tls, mountPath: /etc/steplane-tls, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ .config }}}
    - name: tmp
      emptyDir: {sizeLimit: 64Mi}
    {{- if .tls }}
    - name: tls
      secret: {secretName: {{ .tls }}}
    {{- end }}
{{- end }}
