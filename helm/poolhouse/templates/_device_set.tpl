{{/* A StatefulSet of devices: (dict "ctx" $ "of" values "component" "pool" "name" "replicas" "args"
"link" variable of the invite link "own" variables of its command "where" path of its values). */}}
{{- define "poolhouse.deviceSet" -}}
{{- $of := .of }}
{{- $secrets := include "poolhouse.device.secrets" . | fromJson }}
{{- $parts := merge (dict "secrets" $secrets) . }}
apiVersion: apps/v1
kind: StatefulSet
{{ include "poolhouse.metadata" (dict "ctx" .ctx "component" .component "pool" .pool "name" .name) }}
spec:
  {{- if not (kindIs "invalid" .replicas) }}
  replicas: {{ int .replicas }}
  {{- end }}
  serviceName: {{ .name | quote }}
  podManagementPolicy: Parallel
  minReadySeconds: {{ int $of.minReadySeconds }}
  updateStrategy:
    {{- toYaml $of.updateStrategy | nindent 4 }}
  persistentVolumeClaimRetentionPolicy:
    whenScaled: {{ $of.state.whenScaled }}
    whenDeleted: {{ $of.state.whenDeleted }}
  selector:
    matchLabels:
      {{- include "poolhouse.selectorLabels" . | nindent 6 }}
  template:
    {{- include "poolhouse.podMetadata" (merge (dict "port" (int $of.metricsPort)) .) | nindent 4 }}
    spec:
      {{- include "poolhouse.podFields" . | nindent 6 }}
      {{- with include "poolhouse.device.affinity" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with include "poolhouse.device.tolerations" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- if $of.hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      {{- with $of.resourceClaims }}
      resourceClaims:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $of.initContainers }}
      initContainers:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: node
          image: {{ include "poolhouse.image" (dict "image" $of.image "registry" .ctx.Values.image.registry "tag" (printf "%s-%s" .ctx.Chart.AppVersion $of.device)) | quote }}
          {{- include "poolhouse.containerFields" . | nindent 10 }}
          args:
            {{- toYaml (concat .args (default list $of.extraArgs)) | nindent 12 }}
          env:
            {{- include "poolhouse.env" (dict "plain" (include "poolhouse.device.env" $parts | fromJson) "settings" $of.settings "more" $of.extraEnv "where" (printf "%s.extraEnv" .where)) | nindent 12 }}
          ports:
            - name: metrics
              containerPort: {{ int $of.metricsPort }}
          {{- $sized := merge (dict "resources" (include "poolhouse.device.resources" . | fromYaml)) $of }}
          {{- with include "poolhouse.lifeFields" (dict "of" $sized) | trim }}
          {{- . | nindent 10 }}
          {{- end }}
          volumeMounts:
            {{- include "poolhouse.device.mounts" $parts | nindent 12 }}
        {{- with $of.sidecars }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
        {{- include "poolhouse.device.volumes" $parts | nindent 8 }}
  {{- with include "poolhouse.device.claims" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The headless Service that a StatefulSet asks for: (dict "ctx" "component" "pool" "name" "port").
Nothing
connects to a device through it. */}}
{{- define "poolhouse.deviceService" -}}
apiVersion: v1
kind: Service
{{ include "poolhouse.metadata" (dict "ctx" .ctx "component" .component "pool" .pool "name" .name) }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "poolhouse.selectorLabels" . | nindent 4 }}
  ports:
    - name: metrics
      port: {{ int .port }}
      targetPort: metrics
{{- end -}}
