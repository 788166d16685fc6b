#!/bin/sh
# owner.sh NAME: one data owner, with an invented table. Asks to be admitted, and sends its rows when the study is there.
. "$(dirname "$0")/common.sh"
name=$1
cd "$HOME_DIR"
syncret certs request "$name" >&2
[ -e "$EXCHANGE/$name.request" ] || publish "$name.request" "$name.request"
[ -e table.csv ] || python3 "$here/table.py" >table.csv
wait_for "$EXCHANGE/study"
[ -e study ] || cp -r "$EXCHANGE/study" study
left=$PATIENCE_S
until syncret join study/study.toml --data table.csv --yes; do
    [ "$left" -gt 0 ] || { say "the servers did not take it in $PATIENCE_S s"; exit 1; }
    sleep 5
    left=$((left - 5))
done
