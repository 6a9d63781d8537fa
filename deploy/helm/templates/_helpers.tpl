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
