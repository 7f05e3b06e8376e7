model=$EXAMPLES/../tests/unit/generate/fixtures/gpt2
trireme generate $model --prompt Once --temperature 0 --max-tokens 20 2>/dev/null
trireme generate $model --prompt Once --temperature 0 --max-tokens 20 --echo --dtype bf16 --threads 2 --stop v2 2>/dev/null
printf 'the quick brown' | trireme generate $model --prompt-file - --seed 3 --max-tokens 12 --top-k 5 2>/dev/null
trireme generate $model --prompt 0123456789 --temperature 0 --max-tokens 90 2>&1 >/dev/null | grep note
trireme generate $model --prompt 0123456789 --temperature 0 --max-tokens 90 --slide 24 2>/dev/null | wc -c
trireme generate $model --prompt a --temperature 0 --max-tokens 3 --json 2>/dev/null | sed 's/"first_token_s.*/.../'
cat >prompts <<'END'
{"prompt": "Once", "max_tokens": 5}
{"prompt": "a", "seed": 7, "temperature": 1}

{"prompt": "the quick brown", "max_tokens": 2, "stop": "j"}
{"prompt": "ß"}
{"promt": "a"}
{"prompt": "0123456789", "max_tokens": 4}
END
trireme generate $model --batch prompts --temperature 0 --max-tokens 8 2>/dev/null >one
echo exit $?
trireme generate $model --batch prompts --temperature 0 --max-tokens 8 --at-once 1 2>/dev/null | cmp - one
head -1 prompts | trireme generate $model --batch - --temperature 0 2>/dev/null
sed "s|$model|MODEL|" one
