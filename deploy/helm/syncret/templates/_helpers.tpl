{{- define "syncret.fullname" -}}
{{- printf "%s-syncret" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "syncret.selector" -}}
app.kubernetes.io/name: syncret
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "syncret.labels" -}}
{{ include "syncret.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "syncret.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The port of an address such as alpha.example.org:7100. */}}
{{- define "syncret.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{- define "syncret.safe" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop:
    - ALL
{{- end -}}

{{/* A probe asks the socket in the server's folder, which nobody outside the pod reaches. */}}
{{- define "syncret.probe" -}}
["python", "-c", "import http.client, socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect('/var/lib/syncret/server/admin.sock'); c = http.client.HTTPConnection('server'); c.sock = s; c.request('GET', '/{{ . }}'); sys.exit(c.getresponse().status != 200)"]
{{- end -}}

{{- define "syncret.families" -}}
{{- with .Values.network.ipFamilyPolicy }}
  ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.network.ipFamilies }}
  ipFamilies:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{/* An address to listen at: IPv6 in brackets. */}}
{{- define "syncret.listen" -}}
{{- if contains ":" .Values.network.listen }}[{{ .Values.network.listen }}]{{ else }}{{ .Values.network.listen }}{{ end -}}
{{- end -}}

{{- define "syncret.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "syncret.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}
