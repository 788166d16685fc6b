# Sourced by the scripts beside it. HOME_DIR is what this container keeps, EXCHANGE what all hand to one another: files
# that people would send by mail, and nothing secret.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${HOME_DIR:=/var/lib/syncret}" "${EXCHANGE:=/exchange}" "${SCRAPE:=/scrape}" "${EXAMPLE:=/example}"
: "${PATIENCE_S:=600}"

say() { echo "$(date +%H:%M:%S) $*" >&2; }

# wait_for FILE...: until all are there.
wait_for() {
    left=$PATIENCE_S
    for file in "$@"; do
        while [ ! -e "$file" ]; do
            [ "$left" -gt 0 ] || { say "$file did not come in $PATIENCE_S s"; exit 1; }
            sleep 1
            left=$((left - 1))
        done
    done
}

# publish FILE NAME: to the others, whole.
publish() {
    cp -r "$1" "$EXCHANGE/.$2.$$"
    mv "$EXCHANGE/.$2.$$" "$EXCHANGE/$2"
}
