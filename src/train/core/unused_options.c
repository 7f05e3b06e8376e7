/* SPDX-License-Identifier: Apache-2.0
 *
 * unused_options.c: words of the command line that change nothing in this run, each told with what it would count
 * beside. A file may hold what only some runs use; who types a word wants it to do something.
 */
#include <string.h>

#include "base/log.h"
#include "train/core/config.h"

/* `keys` count where `gate` has one of `values`. */
typedef struct idle_row {
    const char *keys; /* of one section, between blanks */
    const char *gate;
    const char *values; /* with | between them */
    bool is_not;        /* any but these */
} idle_row;

#define FORMAT "data.format" /* the one that the data have, where it is auto */

static const idle_row rows[] = {
    {"consistency staleness scale_lr values backup_workers deal block_kib replicas delay_compensation retry_s "
     "window_kib",
     "parallel.sync", "ps", false},
    {"staleness", "ps.consistency", "ssp", false},
    {"deal scale_lr delay_compensation", "ps.consistency", "bsp", true},
    {"backup_workers", "ps.consistency", "bsp", false},
    {"schedule chunks cut cut_at", "parallel.pipeline", "1", true},
    {"zero_ranks", "parallel.sync", "zero1|zero2|zero3", false},
    {"local_steps", "parallel.sync", "local|diloco", false},
    {"outer_lr outer_momentum outer_fragments outer_delay outer_mix", "parallel.sync", "diloco", false},
    {"compress_between compress_after", "parallel.compress", "none", true},
    {"compress_block", "parallel.compress", "int8", false},
    {"compress_keep", "parallel.compress", "topk", false},
    {"compress_rank compress_rest", "parallel.compress", "powersgd", false},
    {"momentum nesterov", "optim.name", "sgd", false},
    {"beta1 beta2", "optim.name", "adam|adamw", false},
    {"epsilon", "optim.name", "adam|adamw|adagrad", false},
    {"initial_accumulator", "optim.name", "adagrad|ftrl", false},
    {"beta l1 l2", "optim.name", "ftrl", false},
    {"schedule_steps", "optim.schedule", "constant", true},
    {"final_factor min_lr", "optim.schedule", "cosine|linear|wsd", false},
    {"fall_part fall_shape", "optim.schedule", "wsd", false},
    {"step_every step_factor", "optim.schedule", "step", false},
    {"loss_scale loss_scale_init loss_scale_window", "train.precision", "f16", false},
    {"spike_factor spike_window", "train.on_spike", "off", true},
    {"sample_prompt sample_tokens", "train.sample_every", "0", true},
    {"histogram_every image_every notes", "monitor.tensorboard", "false", true},
    {"split split_seed", FORMAT, "tokens", true},
    {"image_size image_resize image_filter image_color broken cache_mib threads", FORMAT, "images", false},
    {"target columns ignore real_columns date_columns text_columns date_format header separator decimal encoding "
     "missing "
     "missing_texts max_categories",
     FORMAT, "csv", false},
    {"missing_value", "data.missing", "constant", false},
    {"context windows tokenizer", FORMAT, "tokens", false},
    {"synthetic_count synthetic_width synthetic_tokens synthetic_keys", FORMAT, "synthetic", false},
};

/* Whether `word` is one of those that `between` separates. */
static bool has_word(const char *words, const char *between, const char *word, size_t length)
{
    for (const char *at = words; *at; at += strcspn(at, between), at += strspn(at, between))
        if (strcspn(at, between) == length && strncmp(at, word, length) == 0)
            return true;
    return false;
}

/* "section.field" of a row's gate, as text. */
static tri_status value_print(const tri_config *config, const char *key, tri_string *out)
{
    const char *dot = strchr(key, '.');
    for (const tri_config_section *at = tri_config_sections; at->table; at++) {
        const tri_option *row = tri_options_find(at->table, dot + 1);
        if (row && strncmp(at->table->section, key, (size_t)(dot - key)) == 0 &&
            !at->table->section[(size_t)(dot - key)])
            return tri_options_print(row, (const char *)config + at->offset, out);
    }
    return TRI_EINTERNAL;
}

/* The section that a row's keys are of: its gate's, but for those of the servers. */
static bool is_of(const idle_row *row, const char *key, const char *field)
{
    const char *section = row == rows ? "ps." : row->gate;
    size_t length = strcspn(section, ".") + 1;
    return strncmp(key, section, length) == 0 && key + length == field &&
           has_word(row->keys, " ", field, strlen(field));
}

static void choices_tell(const char *key, const idle_row *row, const char *found)
{
    tri_string wanted = {0};
    for (const char *at = row->values; *at; at += strcspn(at, "|"), at += *at == '|')
        (void)tri_string_appendf(&wanted, "%s%.*s", wanted.nbytes > 0 ? " or " : "", (int)strcspn(at, "|"), at);
    tri_log(TRI_LOG_WARN, "%s changes nothing in this run: it counts where %s is %s%s, and that is %s", key, row->gate,
            row->is_not ? "not " : "", tri_string_text(&wanted), found);
    tri_string_fini(&wanted);
}

static tri_status gate_print(const tri_config *config, const char *format, const char *gate, tri_string *out)
{
    return strcmp(gate, FORMAT) == 0 ? tri_string_append(out, format) : value_print(config, gate, out);
}

/* The first row that lets it rest is told. */
static void key_look(const tri_config *config, const char *format, const char *key)
{
    const char *field = strchr(key, '.') + 1;
    for (const idle_row *row = rows; row < rows + TRI_COUNT_OF(rows); row++) {
        tri_string found = {0};
        if (is_of(row, key, field) && gate_print(config, format, row->gate, &found) == TRI_OK) {
            const char *text = tri_string_text(&found);
            bool listed = has_word(row->values, "|", text, strlen(text));
            if (listed == row->is_not) {
                choices_tell(key, row, text);
                row = rows + TRI_COUNT_OF(rows) - 1;
            }
        }
        tri_string_fini(&found);
    }
}

void tri_config_idle_tell(const tri_config *config, const char *format, const char *const *overrides)
{
    for (int i = 0; overrides && overrides[i]; i++) {
        char *key = tri_strndup(overrides[i], strcspn(overrides[i], "="));
        if (key && strchr(key, '.'))
            key_look(config, format, key);
        tri_free(key);
    }
}
