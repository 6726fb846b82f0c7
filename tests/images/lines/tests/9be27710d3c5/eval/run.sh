#!/bin/bash
# Run this branch's tests from /workspace; what they found is in eval/results.xml.
cd "$(dirname "$0")/.." || exit 1
python3 -m pytest eval/tests -n auto --timeout=20 --timeout-method=thread --junitxml=eval/results.xml
