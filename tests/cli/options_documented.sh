# docs/config.md is what `trireme manual options` writes.
trireme manual options | diff "$EXAMPLES/../docs/config.md" - && echo same
