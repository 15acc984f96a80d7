{{/* A name that is at most `max` long: (dict "name" "max"). What is cut, or has dots, ends in a
digest of all of it, so that different names stay different. */}}
{{- define "poolhouse.fit" -}}
{{- $plain := replace "." "-" .name -}}
{{- if and (le (len $plain) .max) (eq $plain .name) -}}
{{- $plain -}}
{{- else -}}
{{- printf "%s-%s" (regexReplaceAll "-+$" (trunc (sub .max 11 | int) $plain) "") (sha256sum .name | trunc 10) -}}
{{- end -}}
{{- end -}}

{{- define "poolhouse.chartName" -}}
{{- default .Chart.Name .Values.nameOverride -}}
{{- end -}}

{{/* The beginning of every name, not cut yet. Only the release called as the chart has no release in
it: with Helm's usual rule the releases `a` and `a-poolhouse` would share names. */}}
{{- define "poolhouse.base" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if eq .Release.Name (include "poolhouse.chartName" .) -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "poolhouse.chartName" .) -}}
{{- end -}}
{{- end -}}

{{/* Name of an object: (dict "ctx" $ "suffix" "control"). 63 characters are what a Service takes. */}}
{{- define "poolhouse.name" -}}
{{- include "poolhouse.fit" (dict "name" (printf "%s-%s" (include "poolhouse.base" .ctx) .suffix) "max" 63) -}}
{{- end -}}

{{/* Name of a StatefulSet whose pods are devices. With ordinals up to 999 the names of the pods have
at most 40 characters: what a room keeps of a device's name (joining, section 7). */}}
{{- define "poolhouse.deviceSetName" -}}
{{- include "poolhouse.fit" (dict "name" (printf "%s-%s" (include "poolhouse.base" .ctx) .suffix) "max" 36) -}}
{{- end -}}

{{- define "poolhouse.serviceAccountName" -}}
{{- $own := include "poolhouse.fit" (dict "name" (include "poolhouse.base" .) "max" 63) -}}
{{- default (ternary $own "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{/* Labels that never change: (dict "ctx" $ "component" "node" "pool" "gpu"). */}}
{{- define "poolhouse.selectorLabels" -}}
app.kubernetes.io/name: {{ include "poolhouse.chartName" .ctx | quote }}
app.kubernetes.io/instance: {{ .ctx.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
poolhouse/pool: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "poolhouse.labels" -}}
{{- $own := include "poolhouse.selectorLabels" . | fromYaml -}}
{{- $chart := printf "%s-%s" .ctx.Chart.Name .ctx.Chart.Version | replace "+" "_" | trunc 63 -}}
{{- $set := dict "helm.sh/chart" $chart "app.kubernetes.io/version" (.ctx.Chart.AppVersion | replace "+" "_") "app.kubernetes.io/part-of" "poolhouse" "app.kubernetes.io/managed-by" .ctx.Release.Service -}}
{{- toYaml (merge $own $set (default dict .ctx.Values.commonLabels)) -}}
{{- end -}}

{{/* metadata of an object: (dict "ctx" $ "name" "component" "pool" "annotations" "labels"). */}}
{{- define "poolhouse.metadata" -}}
{{- $labels := include "poolhouse.labels" . | fromYaml -}}
metadata:
  name: {{ .name | quote }}
  namespace: {{ .ctx.Release.Namespace | quote }}
  labels:
    {{- toYaml (merge $labels (default dict .labels)) | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
