#!/bin/sh
# server.sh NAME: one operator's server. Makes its key if there is none, hands out its public file, learns of the two
# others, and serves. MESH and INGEST are where others reach it, ADMIN where Prometheus does, LISTEN_HOST where it
# listens.
. "$(dirname "$0")/common.sh"
name=$1
mesh=${MESH:-$name:7100} ingest=${INGEST:-$name:7443}
# For Prometheus: a certificate of its own for the metrics over HTTPS, which are closed to everybody else.
if [ -n "${ADMIN:-}" ] && [ ! -e "$HOME_DIR/settings.toml" ]; then
    syncret certs operator prometheus --reader --dir "$HOME_DIR" --host "${ADMIN%:*}" \
        --write --address "${LISTEN_HOST:-0.0.0.0}:${ADMIN##*:}" --json >/dev/null
    mkdir -p -m 0700 "$SCRAPE/$name"
    mv "$HOME_DIR/admin/prometheus.key" "$HOME_DIR/admin/prometheus.crt" "$SCRAPE/$name/"
    cp "$HOME_DIR/admin/admin.crt" "$SCRAPE/$name/"
fi
syncret serve init "$name" --mesh "$mesh" --ingest "$ingest" --dir "$HOME_DIR" --out "$HOME_DIR/own.server" >&2
publish "$HOME_DIR/own.server" "$name.server"
wait_for "$EXCHANGE/alpha.server" "$EXCHANGE/beta.server" "$EXCHANGE/gamma.server"
# In earnest the operators compare the words of these files before they go on.
syncret serve join "$EXCHANGE/alpha.server" "$EXCHANGE/beta.server" "$EXCHANGE/gamma.server" --dir "$HOME_DIR" >&2
exec syncret serve --dir "$HOME_DIR" \
    --listen-mesh "${LISTEN_HOST:-0.0.0.0}:${mesh##*:}" --listen-ingest "${LISTEN_HOST:-0.0.0.0}:${ingest##*:}"
