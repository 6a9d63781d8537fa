{{- define "webmcp-gateway.name" -}}
{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "webmcp-gateway.selector" -}}
app.kubernetes.io/name: webmcp-gateway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "webmcp-gateway.labels" -}}
{{ include "webmcp-gateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The headless service, by which the nodes reach each other. */}}
{{- define "webmcp-gateway.nodes" -}}
{{ include "webmcp-gateway.name" . }}-nodes
{{- end }}

{{- /* True where more than one pod may run. */}}
{{- define "webmcp-gateway.several" -}}
{{ if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) }}true{{ end }}
{{- end }}
