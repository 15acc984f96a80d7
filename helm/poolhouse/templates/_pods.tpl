{{/* Fields that every pod has: (dict "ctx" $ "of" workload). */}}
{{- define "poolhouse.podFields" -}}
serviceAccountName: {{ include "poolhouse.serviceAccountName" .ctx | quote }}
automountServiceAccountToken: false
# Links would set POOLHOUSE_PORT and the like by the names of Services.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ int .of.terminationGracePeriodSeconds }}
{{- $context := include "poolhouse.overlay" (dict "base" .ctx.Values.podSecurityContext "over" (default dict .of.podSecurityContext)) | fromJson }}
securityContext:
  {{- toYaml $context | nindent 2 }}
{{- with .ctx.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $field := list "nodeSelector" "topologySpreadConstraints" "dnsConfig" "hostAliases" }}
{{- with get $.of $field }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- range $field := list "priorityClassName" "runtimeClassName" "schedulerName" }}
{{- with get $.of $field }}
{{ $field }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Fields that every container of ours has: (dict "ctx" $ "of" workload). */}}
{{- define "poolhouse.containerFields" -}}
imagePullPolicy: {{ .ctx.Values.image.pullPolicy }}
# The last line of a program that failed says why: it is in `kubectl describe pod`.
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  {{- include "poolhouse.overlay" (dict "base" .ctx.Values.containerSecurityContext "over" (default dict .of.containerSecurityContext)) | fromJson | toYaml | nindent 2 }}
{{- end -}}

{{/* What a person decides about the main container: (dict "of" workload). */}}
{{- define "poolhouse.lifeFields" -}}
{{- range $field := list "startupProbe" "readinessProbe" "livenessProbe" "lifecycle" "resources" }}
{{- with get $.of $field }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a pod: (dict "ctx" $ "of" workload "component" "pool" "port"). */}}
{{- define "poolhouse.podMetadata" -}}
{{- $annotations := default dict .of.podAnnotations -}}
{{- if and .ctx.Values.monitoring.annotations .port -}}
{{- $scrape := dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString .port) "prometheus.io/path" "/metrics" -}}
{{- $annotations = merge (dict) $annotations $scrape -}}
{{- end -}}
{{- /* Without the chart's own version: pods are not replaced because the chart was. */ -}}
{{- $labels := omit (include "poolhouse.labels" . | fromYaml) "helm.sh/chart" -}}
metadata:
  labels:
    {{- toYaml (merge $labels (default dict .of.podLabels)) | nindent 4 }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* A volume with one file of a Secret: (dict "name" "secret" (dict "name" "key")). */}}
{{- define "poolhouse.secretVolume" -}}
- name: {{ .name | quote }}
  secret:
    secretName: {{ .secret.name | quote }}
    defaultMode: 0440
    items:
      - key: {{ .secret.key | quote }}
        path: {{ .secret.key | quote }}
{{- end -}}

{{- define "poolhouse.tlsVolume" -}}
- name: tls
  secret:
    secretName: {{ .secretName | quote }}
    defaultMode: 0440
{{- end -}}

{{/* Replicas on different machines, if possible: (dict "ctx" $ "component"). */}}
{{- define "poolhouse.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "poolhouse.selectorLabels" . | nindent 12 }}
{{- end -}}
