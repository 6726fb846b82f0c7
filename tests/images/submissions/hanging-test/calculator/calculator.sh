#!/bin/bash
# A product takes for ever.
[ "$2" = "*" ] && sleep 86400
echo $(($1 $2 $3))
