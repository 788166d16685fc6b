{{- define "owner.fullname" -}}
{{- printf "%s-syncret-owner" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "owner.labels" -}}
app.kubernetes.io/name: syncret-owner
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "owner.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
