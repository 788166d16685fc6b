#!/bin/sh
# approve.sh: at each operator. Approves the study that was published, once this server has it.
. "$(dirname "$0")/common.sh"
wait_for "$EXCHANGE/study" "$HOME_DIR/admin.sock"
digest=$(syncret certs fingerprint "$EXCHANGE/study/study.toml" --json | sed -n 's/^ *"digest": "\([0-9a-f]*\)".*/\1/p')
left=$PATIENCE_S
until syncret study show "$digest" --dir "$HOME_DIR" >/dev/null 2>&1; do
    [ "$left" -gt 0 ] || { say "the study did not come here in $PATIENCE_S s"; exit 1; }
    sleep 1
    left=$((left - 1))
done
syncret study approve "$digest" --dir "$HOME_DIR" >&2
