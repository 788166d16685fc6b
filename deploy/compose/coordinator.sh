#!/bin/sh
# coordinator.sh OWNER...: at alpha's operator. Proposes the study, and admits the data owners who ask.
. "$(dirname "$0")/common.sh"
wait_for "$HOME_DIR/admin.sock"
work=$HOME_DIR/coordinator
[ -e "$EXCHANGE/study" ] || {
    rm -rf "$work" && mkdir -m 0700 "$work"
    syncret certs authority --dir "$work/authority" >&2
    syncret study propose "$EXAMPLE/study.toml" --dir "$HOME_DIR" --authority "$work/authority" \
        --out "$work/study" >&2
    for owner in "$@"; do
        wait_for "$EXCHANGE/$owner.request"
        # In earnest the owner reads out the words of its request first.
        syncret certs admit "$EXCHANGE/$owner.request" --authority "$work/authority" \
            --out "$work/study/certificates" >&2
    done
    publish "$work/study" study
}
say "the study is published; the operators compare its words and approve"
