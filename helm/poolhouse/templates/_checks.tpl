{{/* What is wrong with values that depend on each other: a YAML list of sentences, each with what to
do. The schema looks at each value alone. */}}
{{- define "poolhouse.checks" -}}
{{- include "poolhouse.checks.names" . }}
{{- if .Values.control.enabled }}{{ include "poolhouse.checks.control" . }}{{ end }}
{{- range $pool, $values := .Values.nodes.pools }}
{{- $of := include "poolhouse.pool" (dict "ctx" $ "pool" $values) | fromJson }}
{{- include "poolhouse.checks.device" (dict "ctx" $ "of" $of "where" (printf "nodes.pools.%s" $pool)) }}
{{- if and $of.autoscaling.enabled (or (empty $of.autoscaling.prometheus.query) (empty $of.autoscaling.prometheus.serverAddress)) }}
- nodes.pools.{{ $pool }}.autoscaling has nothing to scale by: set prometheus.serverAddress and prometheus.query.
{{- end }}
{{- if and $of.autoscaling.enabled (gt (int $of.autoscaling.minReplicas) (int $of.autoscaling.maxReplicas)) }}
- nodes.pools.{{ $pool }}.autoscaling.minReplicas is above maxReplicas: raise maxReplicas.
{{- end }}
{{- end }}
{{- if .Values.host.enabled }}
{{- include "poolhouse.checks.device" (dict "ctx" $ "of" (include "poolhouse.host" . | fromJson) "where" "host") }}
{{- end }}
{{- if .Values.relay.enabled }}{{ include "poolhouse.checks.relay" . }}{{ end }}
{{- if and .Values.networkPolicy.enabled (or .Values.nodes.pools .Values.host.enabled) (not .Values.networkPolicy.serviceCIDRs) }}
- networkPolicy.serviceCIDRs is empty, so peers could make nodes send into the cluster's Services. Name their ranges, for example 10.96.0.0/12.
{{- end }}
{{- end -}}

{{- define "poolhouse.checks.names" -}}
{{- if not (regexMatch "^[a-z]" (include "poolhouse.base" .)) }}
- The release {{ .Release.Name }} begins with a digit, and Services must not. Set fullnameOverride.
{{- end }}
{{- range $pool, $values := .Values.nodes.pools }}
{{- if has $pool (list "control" "host" "relay" "rules" "node") }}
- nodes.pools.{{ $pool }} is the name of a part of the chart. Call the pool something else.
{{- end }}
{{- end }}
{{- end -}}

{{- define "poolhouse.checks.control" -}}
{{- $control := .Values.control }}
{{- $redis := .Values.redis.urlSecret.name }}
{{- if and (not $redis) (gt (int $control.replicas) 1) }}
- control.replicas is {{ $control.replicas }}, but without Redis each replica keeps rooms of its own. Set redis.urlSecret.name, or control.replicas to 1.
{{- end }}
{{- if and (not $redis) $control.autoscaling.enabled }}
- control.autoscaling needs Redis, which replicas share. Set redis.urlSecret.name, or control.autoscaling.enabled to false.
{{- end }}
{{- if $control.autoscaling.enabled }}
{{- if not (or $control.autoscaling.peers $control.autoscaling.memoryUtilization) }}
- control.autoscaling has nothing to scale by. Set control.autoscaling.peers or memoryUtilization.
{{- end }}
{{- if gt (int $control.autoscaling.minReplicas) (int $control.autoscaling.maxReplicas) }}
- control.autoscaling.minReplicas is above maxReplicas. Raise maxReplicas.
{{- end }}
{{- end }}
{{- $least := add $control.drain.delaySeconds $control.drain.spreadSeconds 15 }}
{{- if and $redis (lt (int $control.terminationGracePeriodSeconds) (int $least)) }}
- control.terminationGracePeriodSeconds is {{ $control.terminationGracePeriodSeconds }}, but a drain takes up to {{ $least }} s. Raise it, or lower control.drain.
{{- end }}
{{- if and $control.ingress.enabled (not $control.ingress.hosts) }}
- control.ingress has no host. Set control.ingress.hosts.
{{- end }}
{{- if and $control.httpRoute.enabled (not $control.httpRoute.parentRefs) }}
- control.httpRoute names no gateway. Set control.httpRoute.parentRefs.
{{- end }}
{{- if contains "*" (include "poolhouse.control.publicUrl" .) }}
- {{ include "poolhouse.control.publicUrl" . }} is no address that devices could use. Set control.publicUrl, or name a host without * first.
{{- end }}
{{- if and .Values.turn.cloudflare.keyId (not .Values.turn.cloudflare.tokenSecret.name) }}
- turn.cloudflare.keyId needs the API token of that key. Set turn.cloudflare.tokenSecret.name.
{{- end }}
{{- if and .Values.turn.urls (not .Values.turn.secret.name) }}
- turn.urls names relays for which no credentials can be made. Set turn.secret.name.
{{- end }}
{{- end -}}

{{/* A pool or the host: (dict "ctx" $ "of" values "where"). */}}
{{- define "poolhouse.checks.device" -}}
{{- $of := .of }}
{{- if not $of.roomSecret.name }}
- {{ .where }} has no room. Set {{ .where }}.roomSecret.name to a Secret with an invite link (`poolhouse room new` makes one).
{{- end }}
{{- $limits := default dict (get (default dict $of.resources) "limits") }}
{{- if not (or $of.pledgeGB (get $limits "memory")) }}
- {{ .where }} has no limit on memory. Set {{ .where }}.pledgeGB to what it lends, or {{ .where }}.resources.limits.memory.
{{- end }}
{{- if not (or .ctx.Values.control.enabled .ctx.Values.nodes.signal) }}
- {{ .where }} does not know where its room is. Set nodes.signal, or control.enabled to true.
{{- end }}
{{- if and .ctx.Values.control.enabled (not (include "poolhouse.signal" .ctx)) }}
- {{ .where }} needs a name that the certificate of control.tls is for. Set control.publicUrl, or nodes.signal.
{{- end }}
{{- if and (eq $of.device "cuda") (not $of.gpu.resource) (not $of.resourceClaims) }}
- {{ .where }} asks for no card. Set {{ .where }}.gpu.resource or resourceClaims, or device to cpu.
{{- end }}
{{- if and $of.hostNetwork (not $of.udpPorts) }}
- {{ .where }}.hostNetwork needs ports that the firewall knows. Set {{ .where }}.udpPorts, for example 40000-40199.
{{- end }}
{{- if and (eq $of.cache.type "existingClaim") (not $of.cache.existingClaim) }}
- {{ .where }}.cache names no claim. Set {{ .where }}.cache.existingClaim.
{{- end }}
{{- if and (eq $of.cache.type "hostPath") (not $of.cache.hostPath) }}
- {{ .where }}.cache names no folder. Set {{ .where }}.cache.hostPath.
{{- end }}
{{- end -}}

{{- define "poolhouse.checks.relay" -}}
{{- $relay := .Values.relay }}
{{- if not .Values.turn.secret.name }}
- relay shares a secret with the control plane. Set turn.secret.name.
{{- end }}
{{- if not $relay.host }}
- relay has no name or address that devices could use. Set relay.host.
{{- end }}
{{- if not (or $relay.externalIP $relay.nodeAddressIsPublic) }}
- relay does not know its public address. Set relay.externalIP, or relay.nodeAddressIsPublic if the machine has no other.
{{- end }}
{{- if and $relay.externalIP (gt (int $relay.replicas) 1) }}
- relay.externalIP is one address, but relay.replicas is {{ $relay.replicas }}. Set relay.replicas to 1, or use machines with public addresses.
{{- end }}
{{- if le (int $relay.maxPort) (int $relay.minPort) }}
- relay.maxPort is not above relay.minPort. Raise it.
{{- end }}
{{- if and $relay.tls.secretName (eq (int $relay.port) (int $relay.tlsPort)) }}
- relay.port and relay.tlsPort are both {{ $relay.port }}. Change one of them.
{{- end }}
{{- range $name := list "port" "tlsPort" }}
{{- $port := int (get $relay $name) }}
{{- if and (ge $port (int $relay.minPort)) (le $port (int $relay.maxPort)) }}
- relay.{{ $name }} is {{ $port }}, which is one of the ports of relayed traffic. Take one below relay.minPort.
{{- end }}
{{- end }}
{{- end -}}
