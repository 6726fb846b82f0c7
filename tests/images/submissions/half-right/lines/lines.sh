#!/bin/bash
# About half of the commands, and none of the errors.
command=$1
shift
case $command in
number) exec awk '{ printf "%6d  %s\n", NR, $0 }' "$@" ;;
reverse) exec tac "$@" ;;
flip) exec rev "$@" ;;
sort) LC_ALL=C exec sort "$@" ;;
unique) exec awk '!seen[$0]++' "$@" ;;
head | tail) exec "$command" -n "$@" ;;
upper) exec tr a-z A-Z ;;
lower) exec tr A-Z a-z ;;
squeeze) exec cat -s "$@" ;;
rot13) exec tr A-Za-z N-ZA-Mn-za-m ;;
match) exec grep -F -- "$@" ;;
--version) echo "lines 1.0" ;;
*) exit 3 ;;
esac
