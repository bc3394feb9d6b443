#!/usr/bin/env bash
# Serve the default model on 127.0.0.1:8080; further arguments go to the server. The tree is set up and built.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

listen=${LISTEN:-127.0.0.1:8080}
cat >&2 <<TEXT

Serving $(basename "$MODEL_DIR") on http://$listen (Ctrl-C stops it). From another terminal, in this folder, try:

  curl -sS http://$listen/schemas -H 'Content-Type: application/xml' --data-binary @config/schemas/travel.xml
  curl -sSN 'http://$listen/generate?max_tokens=64' -H 'Content-Type: application/xml' --data-binary @config/prompts/travel.xml
  curl -sS http://$listen/metrics | grep -E 'time_to_first_token_seconds_(sum|count)|module_(lookups|hits)_total'

TEXT
exec build/promptcached --model "$MODEL_DIR" --listen "$listen" "$@"
