#!/bin/bash
# It leaves a process behind, too.
setsid sleep 86400 &
sleep 86400
