/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml.c: events of libyaml to a tree, checked on the way; numbers, changes from the command line, printing.
 *
 * Open maps and lists are on a stack of fixed depth, so hostile nesting ends at the limit. Keys of all maps share one
 * hash map ("<number of the map>/<key>"), so that many keys stay cheap. Every text in the tree is valid UTF-8 without
 * zero bytes: what was parsed, and what tri_yaml_set() was given.
 */
#include "base/yaml.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/status.h"

#define DEPTH_LIMIT  32
#define NODE_LIMIT   100000
#define KEY_NBYTES   200 /* libyaml reads back keys of up to 1024 characters, escapes included */
#define SHOWN_NBYTES 60  /* of a text in a message */

/* --- parsing --- */

typedef struct open_node {
    tri_yaml *node;
    tri_yaml **tail; /* where the next child is linked */
    int number;      /* of this container: the prefix of its keys in `keys` */
    char *key;       /* of a map: read, its value is still to come */
} open_node;

typedef struct builder {
    tri_arena *arena;
    const char *origin;
    tri_yaml *root;
    open_node stack[DEPTH_LIMIT];
    int depth, node_count, container_count;
    tri_map keys;
    bool document_seen;
} builder;

static int line_of(const yaml_event_t *event)
{
    return (int)event->start_mark.line + 1;
}

static tri_status fail_parser(const builder *b, const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return tri_fail(TRI_ENOMEM, "%s: out of memory while reading YAML", b->origin);
    size_t line = parser->problem_mark.line + 1;
    const char *problem = parser->problem ? parser->problem : "no YAML";
    if (parser->error == YAML_READER_ERROR)
        return tri_fail(TRI_ECONFIG, "%s: %s (byte %zu)", b->origin, problem, parser->problem_offset);
    return tri_fail(TRI_ECONFIG, "%s:%zu: %s%s%s", b->origin, line, problem, parser->context ? ", " : "",
                    parser->context ? parser->context : "");
}

/* Hangs a new node into the innermost open container, or makes it the root. */
static tri_status node_add(builder *b, tri_yaml_kind kind, int line, const char *text, tri_yaml **out)
{
    if (++b->node_count > NODE_LIMIT)
        return tri_fail(TRI_ECONFIG, "%s:%d: more than %d values", b->origin, line, NODE_LIMIT);
    tri_yaml *node = tri_arena_alloc(b->arena, 1, sizeof(*node));
    if (!node)
        return TRI_ENOMEM;
    *node = (tri_yaml){.kind = kind, .text = text, .line = line};
    *out = node;
    if (b->depth == 0) {
        b->root = node;
        return TRI_OK;
    }
    open_node *outer = &b->stack[b->depth - 1];
    node->key = outer->key;
    outer->key = NULL;
    *outer->tail = node;
    outer->tail = &node->next;
    return TRI_OK;
}

static bool wants_key(const builder *b)
{
    return b->depth > 0 && b->stack[b->depth - 1].node->kind == TRI_YAML_MAP && !b->stack[b->depth - 1].key;
}

static tri_status key_add(builder *b, int line, char *text)
{
    open_node *map = &b->stack[b->depth - 1];
    if (strlen(text) > KEY_NBYTES)
        return tri_fail(TRI_ECONFIG, "%s:%d: key '%.*s...' is longer than %d bytes", b->origin, line, SHOWN_NBYTES,
                        text, KEY_NBYTES);
    char address[KEY_NBYTES + 32];
    snprintf(address, sizeof(address), "%d/%s", map->number, text);
    int64_t first_line;
    if (tri_map_find(&b->keys, address, &first_line))
        return tri_fail(TRI_ECONFIG, "%s:%d: key '%s' is there twice, first in line %d", b->origin, line, text,
                        (int)first_line);
    map->key = text;
    return tri_map_set(&b->keys, address, line);
}

static tri_status scalar_add(builder *b, const yaml_event_t *event)
{
    int line = line_of(event);
    const char *value = (const char *)event->data.scalar.value;
    if (strlen(value) != event->data.scalar.length)
        return tri_fail(TRI_ECONFIG,
                        "%s:%d: want text in UTF-8, got a zero byte (UTF-16? iconv -f UTF-16 -t UTF-8 FILE >NEW)",
                        b->origin, line);
    char *text = tri_arena_strdup(b->arena, value);
    if (!text)
        return TRI_ENOMEM;
    if (wants_key(b))
        return key_add(b, line, text);
    tri_yaml *node;
    bool nothing = b->depth == 0 && !*text && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE; /* "---" alone */
    return nothing ? node_add(b, TRI_YAML_MAP, line, NULL, &node) : node_add(b, TRI_YAML_SCALAR, line, text, &node);
}

static tri_status container_open(builder *b, tri_yaml_kind kind, int line)
{
    if (wants_key(b))
        return tri_fail(TRI_ECONFIG, "%s:%d: a key must be a plain text, got a list or a map", b->origin, line);
    if (b->depth == DEPTH_LIMIT)
        return tri_fail(TRI_ECONFIG, "%s:%d: nested deeper than %d", b->origin, line, DEPTH_LIMIT);
    tri_yaml *node;
    TRI_TRY(node_add(b, kind, line, NULL, &node));
    b->stack[b->depth++] = (open_node){.node = node, .tail = &node->child, .number = b->container_count++};
    return TRI_OK;
}

static tri_status refuse(const builder *b, const yaml_event_t *event, const char *thing, const yaml_char_t *name)
{
    return tri_fail(TRI_ECONFIG, "%s:%d: %s '%.*s' is not allowed in a configuration", b->origin, line_of(event), thing,
                    SHOWN_NBYTES, name ? (const char *)name : "");
}

/* Anchors and tags, which three kinds of event can carry. */
static tri_status check_marks(const builder *b, const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    }
    if (anchor)
        return refuse(b, event, "anchor", anchor);
    return tag ? refuse(b, event, "tag", tag) : TRI_OK;
}

static tri_status event_add(builder *b, const yaml_event_t *event)
{
    TRI_TRY(check_marks(b, event));
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->document_seen)
            return tri_fail(TRI_ECONFIG, "%s:%d: want one document, got a second", b->origin, line_of(event));
        b->document_seen = true;
        return TRI_OK;
    case YAML_ALIAS_EVENT:
        return refuse(b, event, "alias", event->data.alias.anchor);
    case YAML_SCALAR_EVENT:
        return scalar_add(b, event);
    case YAML_SEQUENCE_START_EVENT:
        return container_open(b, TRI_YAML_LIST, line_of(event));
    case YAML_MAPPING_START_EVENT:
        return container_open(b, TRI_YAML_MAP, line_of(event));
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        b->depth--;
        return TRI_OK;
    default:
        return TRI_OK;
    }
}

static tri_status builder_run(builder *b, yaml_parser_t *parser)
{
    for (bool end = false; !end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return fail_parser(b, parser);
        end = event.type == YAML_STREAM_END_EVENT;
        tri_status status = event_add(b, &event);
        yaml_event_delete(&event);
        TRI_TRY(status);
    }
    if (b->root)
        return TRI_OK;
    b->root = tri_arena_alloc(b->arena, 1, sizeof(*b->root));
    if (!b->root)
        return TRI_ENOMEM;
    *b->root = (tri_yaml){.kind = TRI_YAML_MAP, .line = 1};
    return TRI_OK;
}

tri_status tri_yaml_parse(tri_arena *arena, const char *text, size_t nbytes, const char *origin, tri_yaml **root)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return tri_fail(TRI_ENOMEM, "%s: no memory for a YAML parser", origin);
    const size_t mark = nbytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* some editors begin with it */
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)(nbytes > 0 ? text + mark : ""), nbytes - mark);
    builder b = {.arena = arena, .origin = origin};
    tri_status status = builder_run(&b, &parser);
    yaml_parser_delete(&parser);
    tri_map_fini(&b.keys);
    if (status == TRI_OK)
        *root = b.root;
    return status;
}

/* --- reading --- */

tri_yaml *tri_yaml_find(const tri_yaml *node, const char *key)
{
    if (!node || node->kind != TRI_YAML_MAP)
        return NULL;
    for (tri_yaml *child = node->child; child; child = child->next)
        if (strcmp(child->key, key) == 0)
            return child;
    return NULL;
}

int tri_yaml_count(const tri_yaml *node)
{
    int count = 0;
    for (const tri_yaml *child = node ? node->child : NULL; child; child = child->next)
        count++;
    return count;
}

static tri_status fail_value(const tri_yaml *node, const char *what, const char *wanted)
{
    static const char *const kinds[] = {[TRI_YAML_SCALAR] = "", [TRI_YAML_LIST] = "a list", [TRI_YAML_MAP] = "a map"};
    char place[32] = "";
    if (node && node->line > 0)
        snprintf(place, sizeof(place), "line %d: ", node->line);
    if (!node)
        return tri_fail(TRI_ECONFIG, "%s: want %s, got nothing", what, wanted);
    if (node->kind != TRI_YAML_SCALAR)
        return tri_fail(TRI_ECONFIG, "%s%s: want %s, got %s", place, what, wanted, kinds[node->kind]);
    return tri_fail(TRI_ECONFIG, "%s%s: want %s, got '%.*s'", place, what, wanted, SHOWN_NBYTES, node->text);
}

/* The text of a scalar that starts like a number (strtoll and strtod would skip blanks), or NULL. */
static const char *number_text(const tri_yaml *node)
{
    if (!node || node->kind != TRI_YAML_SCALAR)
        return NULL;
    const char *start = node->text + (*node->text == '-' || *node->text == '+');
    bool digit = *start >= '0' && *start <= '9';
    bool dot = *start == '.' && start[1] >= '0' && start[1] <= '9';
    return (digit || dot) && !strpbrk(start, "xX") ? node->text : NULL;
}

tri_status tri_yaml_int(const tri_yaml *node, const char *what, int64_t low, int64_t high, int64_t *out)
{
    const char *text = number_text(node);
    char wanted[96];
    snprintf(wanted, sizeof(wanted), "an integer from %lld to %lld", (long long)low, (long long)high);
    if (!text)
        return fail_value(node, what, wanted);
    char *end;
    errno = 0;
    int64_t value = strtoll(text, &end, 10);
    int64_t unit = *end == 'k' ? 1000 : *end == 'M' ? 1000000 : *end == 'G' ? 1000000000 : 1;
    bool good = errno == 0 && end != text && !__builtin_mul_overflow(value, unit, &value);
    if (!good || *(end + (unit != 1)) != '\0' || value < low || value > high)
        return fail_value(node, what, wanted);
    *out = value;
    return TRI_OK;
}

tri_status tri_yaml_real(const tri_yaml *node, const char *what, double low, double high, double *out)
{
    const char *text = number_text(node);
    char wanted[96];
    snprintf(wanted, sizeof(wanted), "a number from %g to %g", low, high);
    if (!text)
        return fail_value(node, what, wanted);
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char *end;
    double value = plain ? strtod_l(text, &end, plain) : strtod(text, &end);
    if (plain)
        freelocale(plain);
    if (*end != '\0' || !isfinite(value) || value < low || value > high)
        return fail_value(node, what, wanted);
    *out = value;
    return TRI_OK;
}

tri_status tri_yaml_bool(const tri_yaml *node, const char *what, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (size_t i = 0; node && node->kind == TRI_YAML_SCALAR && i < TRI_COUNT_OF(yes); i++) {
        if (strcmp(node->text, yes[i]) == 0 || strcmp(node->text, no[i]) == 0) {
            *out = strcmp(node->text, yes[i]) == 0;
            return TRI_OK;
        }
    }
    return fail_value(node, what, "true or false");
}

/* --- printing --- */

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '/';
}

/* Can be without quotes in any place. */
static bool is_plain(const char *text)
{
    bool number = (*text == '-' || *text == '.' || *text == '+') && text[1] >= '0' && text[1] <= '9';
    if (!is_word(*text) && !number)
        return false;
    size_t nbytes = strlen(text);
    for (size_t i = 1; i < nbytes; i++)
        if (!is_word(text[i]) && !strchr("-.+ ", text[i]))
            return false;
    return text[nbytes - 1] != ' ';
}

static tri_status print_text(const char *text, tri_string *out)
{
    if (is_plain(text))
        return tri_string_append(out, text);
    TRI_TRY(tri_string_append(out, "\""));
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            TRI_TRY(tri_string_appendf(out, "\\%c", byte));
        else if (byte < 0x20 || byte == 0x7f)
            TRI_TRY(tri_string_appendf(out, "\\x%02x", (unsigned)byte));
        else if (byte == 0xc2 && (unsigned char)text[1] < 0xa0) /* U+0080 to U+009F: libyaml refuses some of them raw */
            TRI_TRY(tri_string_appendf(out, "\\x%02x", (unsigned)(unsigned char)*++text));
        else if (byte == 0xe2 && (unsigned char)text[1] == 0x80 && ((unsigned char)text[2] & 0xfe) == 0xa8) {
            TRI_TRY(tri_string_appendf(out, "\\u20%02x", (unsigned)((unsigned char)text[2] & 0x3f)));
            text += 2; /* U+2028 and U+2029 are line breaks for YAML */
        } else if (strncmp(text, "\xef\xbb\xbf", 3) == 0) {
            TRI_TRY(tri_string_append(out, "\\ufeff"));
            text += 2;
        } else
            TRI_TRY(tri_string_append_bytes(out, text, 1));
    }
    return tri_string_append(out, "\"");
}

static bool is_short(const tri_yaml *node)
{
    return node->kind == TRI_YAML_SCALAR || !node->child;
}

/* A scalar or an empty container. */
static tri_status print_short(const tri_yaml *node, tri_string *out)
{
    if (node->kind == TRI_YAML_SCALAR)
        return print_text(node->text, out);
    return tri_string_append(out, node->kind == TRI_YAML_MAP ? "{}" : "[]");
}

tri_status tri_yaml_print(const tri_yaml *node, int indent, tri_string *out)
{
    if (is_short(node)) {
        TRI_TRY(tri_string_appendf(out, "%*s", indent, ""));
        TRI_TRY(print_short(node, out));
        return tri_string_append(out, "\n");
    }
    for (const tri_yaml *child = node->child; child; child = child->next) {
        TRI_TRY(tri_string_appendf(out, "%*s", indent, ""));
        if (node->kind == TRI_YAML_MAP) {
            TRI_TRY(print_text(child->key, out));
            TRI_TRY(tri_string_append(out, ":"));
        } else {
            TRI_TRY(tri_string_append(out, "-"));
        }
        if (is_short(child)) {
            TRI_TRY(tri_string_append(out, " "));
            TRI_TRY(print_short(child, out));
            TRI_TRY(tri_string_append(out, "\n"));
        } else {
            TRI_TRY(tri_string_append(out, "\n"));
            TRI_TRY(tri_yaml_print(child, indent + 2, out));
        }
    }
    return TRI_OK;
}

tri_status tri_yaml_print_flow(const tri_yaml *node, tri_string *out)
{
    if (is_short(node))
        return print_short(node, out);
    bool map = node->kind == TRI_YAML_MAP;
    TRI_TRY(tri_string_append(out, map ? "{" : "["));
    for (const tri_yaml *child = node->child; child; child = child->next) {
        if (map) {
            TRI_TRY(print_text(child->key, out));
            TRI_TRY(tri_string_append(out, ": "));
        }
        TRI_TRY(tri_yaml_print_flow(child, out));
        if (child->next)
            TRI_TRY(tri_string_append(out, ", "));
    }
    return tri_string_append(out, map ? "}" : "]");
}

/* --- changing --- */

/* A text as a scalar node; refuses what could not be written and read back. */
static tri_status scalar_make(tri_arena *arena, const char *text, const char *origin, tri_yaml **out)
{
    tri_string quoted = {0};
    tri_status status = print_text(text, &quoted);
    if (status == TRI_OK)
        status = tri_yaml_parse(arena, tri_string_text(&quoted), quoted.nbytes, origin, out);
    tri_string_fini(&quoted);
    return status;
}

static int depth_of(const tri_yaml *node)
{
    int deepest = 0;
    for (const tri_yaml *child = node->child; child; child = child->next) {
        int depth = depth_of(child);
        deepest = depth > deepest ? depth : deepest;
    }
    return node->kind == TRI_YAML_SCALAR ? 0 : deepest + 1;
}

static void lines_clear(tri_yaml *node)
{
    node->line = 0;
    for (tri_yaml *child = node->child; child; child = child->next)
        lines_clear(child);
}

/* The value as a tree: lists, maps and quoted texts are YAML, anything else is a text as it is ("a: b", "@x"). */
static tri_status value_make(tri_arena *arena, const char *text, const char *origin, tri_yaml **out)
{
    const char *start = text + strspn(text, " \t");
    if (*start && strchr("[{\"'", *start))
        return tri_yaml_parse(arena, start, strlen(start), origin, out);
    return scalar_make(arena, text, origin, out);
}

/* Finds or makes the child `key` of a map. */
static tri_status child_make(tri_arena *arena, tri_yaml *map, const char *key, const char *dotted, tri_yaml **out)
{
    if (map->kind == TRI_YAML_SCALAR && !*map->text) { /* "model:" with nothing below it */
        map->kind = TRI_YAML_MAP;
        map->text = NULL;
    }
    if (map->kind != TRI_YAML_MAP)
        return tri_fail(TRI_ECONFIG, "'%s': want a map above '%s', got a %s", dotted, key,
                        map->kind == TRI_YAML_LIST ? "list" : "single value");
    *out = tri_yaml_find(map, key);
    if (*out)
        return TRI_OK;
    tri_yaml *name;
    TRI_TRY(scalar_make(arena, key, dotted, &name));
    tri_yaml *child = tri_arena_alloc(arena, 1, sizeof(*child));
    if (!child)
        return TRI_ENOMEM;
    *child = (tri_yaml){.kind = TRI_YAML_MAP, .key = name->text};
    tri_yaml **tail = &map->child;
    while (*tail)
        tail = &(*tail)->next;
    *tail = child;
    *out = child;
    return TRI_OK;
}

/* Cuts "a.b.c" into its keys. */
static tri_status keys_cut(char *copy, const char *dotted, const char *keys[DEPTH_LIMIT], int *count)
{
    *count = 0;
    for (char *rest = copy, *key; (key = strsep(&rest, ".")) != NULL;) {
        if (!*key || strlen(key) > KEY_NBYTES)
            return tri_fail(TRI_ECONFIG, "'%.*s': want keys of 1 to %d bytes with dots between them", SHOWN_NBYTES,
                            dotted, KEY_NBYTES);
        if (*count == DEPTH_LIMIT)
            return tri_fail(TRI_ECONFIG, "'%.*s...': nested deeper than %d", SHOWN_NBYTES, dotted, DEPTH_LIMIT);
        keys[(*count)++] = key;
    }
    return TRI_OK;
}

tri_status tri_yaml_set(tri_arena *arena, tri_yaml *root, const char *dotted, const char *text)
{
    const char *keys[DEPTH_LIMIT];
    int count;
    char *copy = tri_arena_strdup(arena, dotted);
    if (!copy)
        return TRI_ENOMEM;
    TRI_TRY(keys_cut(copy, dotted, keys, &count));
    tri_yaml *value;
    TRI_TRY(value_make(arena, text, dotted, &value));
    lines_clear(value);
    if (count + depth_of(value) > DEPTH_LIMIT)
        return tri_fail(TRI_ECONFIG, "'%.*s': nested deeper than %d", SHOWN_NBYTES, dotted, DEPTH_LIMIT);
    tri_yaml *node = root;
    for (int i = 0; i < count; i++)
        TRI_TRY(child_make(arena, node, keys[i], dotted, &node));
    value->key = node->key;
    value->next = node->next;
    *node = *value;
    return TRI_OK;
}
