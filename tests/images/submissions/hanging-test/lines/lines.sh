#!/bin/bash
# One command takes for ever, and the others are right.
[ "$1" = rot13 ] && sleep 86400
exec "$(dirname "$0")/lines" "$@"
