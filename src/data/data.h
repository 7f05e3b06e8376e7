/* SPDX-License-Identifier: Apache-2.0
 *
 * data.h: data sets, the order of their samples, and batches of shards.
 *
 * The order is a pure function of (seed, epoch, position). A data set is split once, by a permutation that depends on
 * the seed alone, into V *parts*, one per shard of the batch; shard v of every batch takes its samples from part v, in
 * an order that changes each epoch. So a worker that owns shards [a, b) ever reads parts [a, b) only, and the order
 * does not depend on the number of workers.
 */
#ifndef TRI_DATA_DATA_H
#define TRI_DATA_DATA_H

#include <trireme/tensor.h>

#include "base/arena.h"
#include "base/containers.h"
#include "base/options.h"
#include "base/runtime.h"
#include "device/device.h"

#define tri_data_format_words(W)                                                                                       \
    W(TRI_DATA_AUTO, "auto")                                                                                           \
    W(TRI_DATA_IDX, "idx")                                                                                             \
    W(TRI_DATA_CIFAR, "cifar")                                                                                         \
    W(TRI_DATA_NPY, "npy")                                                                                             \
    W(TRI_DATA_CSV, "csv")                                                                                             \
    W(TRI_DATA_TOKENS, "tokens")                                                                                       \
    W(TRI_DATA_IMAGES, "images")                                                                                       \
    W(TRI_DATA_WEBDATASET, "webdataset")                                                                               \
    W(TRI_DATA_SYNTHETIC, "synthetic")
TRI_ENUM(tri_data_format)
#define tri_normalize_words(W)                                                                                         \
    W(TRI_NORMALIZE_AUTO, "auto")                                                                                      \
    W(TRI_NORMALIZE_NONE, "none")                                                                                      \
    W(TRI_NORMALIZE_UNIT, "unit") W(TRI_NORMALIZE_STANDARD, "standard") W(TRI_NORMALIZE_IMAGENET, "imagenet")
TRI_ENUM(tri_normalize)
#define tri_resize_mode_words(W) W(TRI_RESIZE_CROP, "crop") W(TRI_RESIZE_EXACT, "exact")
TRI_ENUM(tri_resize_mode)
#define tri_image_filter_words(W) W(TRI_IMAGE_BILINEAR, "bilinear") W(TRI_IMAGE_AREA, "area")
TRI_ENUM(tri_image_filter)
#define tri_image_color_words(W) W(TRI_IMAGE_RGB, "rgb") W(TRI_IMAGE_GRAY, "gray")
TRI_ENUM(tri_image_color)
#define tri_data_broken_words(W) W(TRI_BROKEN_REFUSE, "refuse") W(TRI_BROKEN_SKIP, "skip")
TRI_ENUM(tri_data_broken)
#define tri_data_windows_words(W)                                                                                      \
    W(TRI_WINDOWS_SHIFTED, "shifted") W(TRI_WINDOWS_FIXED, "fixed") W(TRI_WINDOWS_RANDOM, "random")
TRI_ENUM(tri_data_windows)
#define tri_data_split_words(W) W(TRI_SPLIT_SHUFFLED, "shuffled") W(TRI_SPLIT_CONTIGUOUS, "contiguous")
TRI_ENUM(tri_data_split)
#define tri_csv_header_words(W) W(TRI_HEADER_AUTO, "auto") W(TRI_HEADER_YES, "yes") W(TRI_HEADER_NO, "no")
TRI_ENUM(tri_csv_header)
#define tri_csv_separator_words(W)                                                                                     \
    W(TRI_SEPARATOR_AUTO, "auto")                                                                                      \
    W(TRI_SEPARATOR_COMMA, "comma")                                                                                    \
    W(TRI_SEPARATOR_SEMICOLON, "semicolon") W(TRI_SEPARATOR_TAB, "tab") W(TRI_SEPARATOR_PIPE, "pipe")
TRI_ENUM(tri_csv_separator)
#define tri_csv_decimal_words(W) W(TRI_DECIMAL_AUTO, "auto") W(TRI_DECIMAL_POINT, "point") W(TRI_DECIMAL_COMMA, "comma")
TRI_ENUM(tri_csv_decimal)
#define tri_csv_encoding_words(W)                                                                                      \
    W(TRI_ENCODING_AUTO, "auto")                                                                                       \
    W(TRI_ENCODING_UTF8, "utf-8") W(TRI_ENCODING_UTF16, "utf-16") W(TRI_ENCODING_LATIN1, "latin-1")
TRI_ENUM(tri_csv_encoding)
#define tri_csv_missing_words(W)                                                                                       \
    W(TRI_MISSING_REFUSE, "refuse") W(TRI_MISSING_MEAN, "mean") W(TRI_MISSING_CONSTANT, "constant")
TRI_ENUM(tri_csv_missing)

#define TRI_DATA_OPTIONS(X)                                                                                            \
    X(NAME, name, "", 0, 0, NULL, "a known data set: fashion-mnist (Debian's dataset-fashion-mnist), synthetic")       \
    X(PATH, path, "", 0, 1, NULL,                                                                                      \
      "file, folder or URL of the data; for idx: the folder or the common start of the four names")                    \
    X(ENUM, format, "auto", 0, 0, tri_data_format, "file format of the data")                                          \
    X(TEXT, test, "0.1", 0, 1, NULL, "test data: a path, or, if the data have no test files, a fraction: 0 to 0.9")    \
    X(TEXT, validation, "0", 0, 1, NULL,                                                                               \
      "validation data, on which the best checkpoint is chosen: a path, or a fraction of the training data; 0: the "   \
      "data's own files for validation, else the test data")                                                           \
    X(ENUM, split, "shuffled", 0, 0, tri_data_split,                                                                   \
      "how fractions are taken: shuffled: at random, stratified by class; contiguous: the last samples",               \
      "data.format!=tokens")                                                                                           \
    X(INT, split_seed, "0", 0, 1e15, NULL, "seed of the shuffled split", "data.format!=tokens")                        \
    X(INT, limit, "0", 0, 1e15, NULL, "use only the first N training samples; 0: all")                                 \
    X(INT, test_limit, "0", 0, 1e15, NULL, "use only the first N test samples; 0: all")                                \
    X(BOOL, shuffle, "true", 0, 0, NULL, "new random order in each epoch")                                             \
    X(INT, shuffle_block, "64", 1, 1e6, NULL,                                                                          \
      "samples that follow each other in the files and are read together, in a random order of such blocks",           \
      "data.format=webdataset data.shuffle=true")                                                                      \
    X(INT, shuffle_buffer, "16384", 1, 1e9, NULL,                                                                      \
      "samples of that order that are shuffled among each other; a set of no more is shuffled as a whole",             \
      "data.format=webdataset data.shuffle=true")                                                                      \
    X(PATH, index, "", 0, 0, NULL,                                                                                     \
      "folder for what is found once in large files, such as the places of samples; empty: .trireme beside each file", \
      "data.format=webdataset|tokens")                                                                                 \
    X(ENUM, normalize, "auto", 0, 0, tri_normalize,                                                                    \
      "unit: bytes to [0, 1]; standard: by mean and standard deviation of the channels, known or measured over at "    \
      "most 1,024 samples; imagenet: by those of ImageNet; auto: imagenet for RGB image files, standard if the data "  \
      "set's are known and for tables (each column by its own), else unit for bytes and none for floats")              \
    X(INT, crop, "0", 0, 64, NULL, "augmentation: pad images by N pixels and crop at random")                          \
    X(BOOL, flip, "false", 0, 0, NULL, "augmentation: mirror images left to right at random")                          \
    X(REAL, random_crop, "0", 0, 1, NULL,                                                                              \
      "augmentation: random resized crop: smallest fraction of the image's area, 0.08 as in torchvision; 0: off")      \
    X(REAL, brightness, "0", 0, 1, NULL, "augmentation: color jitter: brightness times 1 - x to 1 + x")                \
    X(REAL, contrast, "0", 0, 1, NULL, "augmentation: color jitter: contrast times 1 - x to 1 + x")                    \
    X(REAL, saturation, "0", 0, 1, NULL, "augmentation: color jitter: saturation times 1 - x to 1 + x")                \
    X(REAL, hue, "0", 0, 0.5, NULL, "augmentation: color jitter: hue turned by -x to x of the circle of colors")       \
    X(REAL, mixup, "0", 0, 1, NULL,                                                                                    \
      "augmentation: mixup: each image and its class are mixed with another of its shard, in parts by "                \
      "Beta(x, x); 0: off; with cutmix each in half of the cases")                                                     \
    X(REAL, cutmix, "0", 0, 1, NULL,                                                                                   \
      "augmentation: cutmix: a rectangle of another image of the shard, area by Beta(x, x), and as much of its "       \
      "class; "                                                                                                        \
      "0: off")                                                                                                        \
    X(REAL, erase, "0", 0, 1, NULL, "augmentation: probability that a random rectangle is set to 0")                   \
    X(NAME, image_size, "", 0, 0, NULL,                                                                                \
      "size of a sample in pixels: 224, or height x width such as 160x224; empty: the size of the files, which must "  \
      "all have one size",                                                                                             \
      "data.format=images|webdataset")                                                                                 \
    X(ENUM, image_resize, "crop", 0, 0, tri_resize_mode,                                                               \
      "crop: scale the shorter side and cut out the middle; exact: scale each side by its own factor",                 \
      "data.format=images|webdataset")                                                                                 \
    X(ENUM, image_filter, "bilinear", 0, 0, tri_image_filter, "filter of the resize, as in Pillow",                    \
      "data.format=images|webdataset")                                                                                 \
    X(ENUM, image_color, "rgb", 0, 0, tri_image_color, "channels of a sample", "data.format=images|webdataset")        \
    X(ENUM, broken, "refuse", 0, 0, tri_data_broken,                                                                   \
      "a file that cannot be decoded ends the run, or (skip) is left out with a warning",                              \
      "data.format=images|webdataset")                                                                                 \
    X(INT, cache_mib, "1024", 0, 1e9, NULL,                                                                            \
      "keep decoded samples in memory if all of them take at most N MiB; 0: decode each time",                         \
      "data.format=images|webdataset")                                                                                 \
    X(INT, threads, "0", 0, 256, NULL, "threads that decode ahead; 0: as many as there are free cores",                \
      "data.format=images|webdataset")                                                                                 \
    X(LIST, target, "[]", 0, 0, NULL,                                                                                  \
      "column of the target, by its name or its number from 0; several for several real targets; []: the last; in "    \
      "tar "                                                                                                           \
      "files the field of a .json that holds the label",                                                               \
      "data.format=csv|webdataset")                                                                                    \
    X(LIST, columns, "[]", 0, 0, NULL, "columns that the model reads; []: all but the target", "data.format=csv")      \
    X(LIST, ignore, "[]", 0, 0, NULL,                                                                                  \
      "columns to leave out; in evaluation also columns that the training table does not have", "data.format=csv")     \
    X(LIST, real_columns, "[]", 0, 0, NULL, "columns that are numbers, whatever they look like", "data.format=csv")    \
    X(LIST, date_columns, "[]", 0, 0, NULL, "columns that are dates, read as days since 1970", "data.format=csv")      \
    X(LIST, text_columns, "[]", 0, 0, NULL, "columns that are categories: one input for each, one for unknown ones",   \
      "data.format=csv")                                                                                               \
    X(TEXT, date_format, "", 0, 0, NULL,                                                                               \
      "format of dates, with %Y %m %d %H %M %S; empty: 2024-03-31, 2024/03/31 or 31.03.2024, and a time",              \
      "data.format=csv")                                                                                               \
    X(ENUM, header, "auto", 0, 0, tri_csv_header, "whether the first line names the columns", "data.format=csv")       \
    X(ENUM, separator, "auto", 0, 0, tri_csv_separator, "separator of the fields", "data.format=csv")                  \
    X(ENUM, decimal, "auto", 0, 0, tri_csv_decimal, "decimal mark of numbers", "data.format=csv")                      \
    X(ENUM, encoding, "auto", 0, 0, tri_csv_encoding, "encoding of the file; auto: UTF-8 or UTF-16",                   \
      "data.format=csv")                                                                                               \
    X(ENUM, missing, "refuse", 0, 0, tri_csv_missing,                                                                  \
      "a missing value ends the run with its line, or becomes the mean of the column or data.missing_value; a "        \
      "missing category counts as unknown",                                                                            \
      "data.format=csv")                                                                                               \
    X(REAL, missing_value, "0", -1e30, 1e30, NULL, "replaces missing values, as it would be in the table",             \
      "data.format=csv data.missing=constant")                                                                         \
    X(LIST, missing_texts, "[]", 0, 0, NULL,                                                                           \
      "texts for a missing value besides the empty one; []: NA, N/A, #N/A, NaN, null, None, <NA>, ?",                  \
      "data.format=csv")                                                                                               \
    X(INT, max_categories, "1000", 1, 1e6, NULL, "most categories of a column", "data.format=csv")                     \
    X(INT, classes, "0", -1, 1e9, NULL,                                                                                \
      "number of classes; 0: found in the data; -1: regression, targets are real numbers. In a table texts are "       \
      "classes, and integers if there are few of them")                                                                \
    X(INT, prefetch, "-1", -1, 64, NULL,                                                                               \
      "batches that a thread prepares ahead; 0: the threads of the step prepare each batch; -1: 2 if a core is free, " \
      "else 0")                                                                                                        \
    X(INT, context, "256", 1, 1e8, NULL, "length of a sample in tokens", "data.format=tokens")                         \
    X(ENUM, windows, "shifted", 0, 0, tri_data_windows,                                                                \
      "shifted: consecutive windows with a new offset each epoch; fixed: consecutive windows from the first token "    \
      "on; random: random windows, as nanoGPT draws them",                                                             \
      "data.format=tokens")                                                                                            \
    X(PATH, tokenizer, "auto", 0, 1, NULL,                                                                             \
      "byte, char, or the path of a tokenizer.json, an encoder.json or their folder; auto: the tokenizer of "          \
      "model.from or of the run, if there is one, else char",                                                          \
      "data.format=tokens")                                                                                            \
    X(NAME, text_field, "text", 0, 0, NULL, "field of JSON lines that holds the text", "data.format=tokens")           \
    X(BOOL, as_text, "false", 0, 0, NULL,                                                                              \
      "tokenize a file as it is, even JSON and UTF-16, which are refused otherwise", "data.format=tokens")             \
    X(INT, synthetic_count, "4096", 1, 1e12, NULL, "number of samples", "data.format=synthetic")                       \
    X(INT, synthetic_width, "32", 1, 1e6, NULL, "values of a sample", "data.format=synthetic")                         \
    X(BOOL, synthetic_tokens, "false", 0, 0, NULL,                                                                     \
      "samples are data.synthetic_width tokens below data.classes, targets the next ones", "data.format=synthetic")    \
    X(INT, synthetic_keys, "0", 0, 2147483647, NULL,                                                                   \
      "above 0: a click log: samples are data.synthetic_width keys below N with a Zipf distribution, targets 1 or 0",  \
      "data.format=synthetic")
typedef struct tri_data_config {
    TRI_DATA_OPTIONS(TRI_OPTION_FIELD)
    const char *own_tokenizer; /* path of what `tokenizer: auto` stands for; NULL: char */
    struct tri_table *table;   /* borrowed: what the columns of a table mean; NULL: learned from the training rows */
} tri_data_config;
extern const tri_option_table tri_data_options; /* section "data" */

typedef struct tri_dataset tri_dataset;
struct tri_tokenizer;
struct tri_table; /* tables/table.h */

typedef enum tri_data_part { TRI_PART_TRAIN, TRI_PART_TEST, TRI_PART_VALIDATION } tri_data_part;

/* Samples that an embedding reads: they become i32, all others f32. */
static inline bool tri_is_whole(tri_dtype dtype)
{
    return dtype == TRI_I32 || dtype == TRI_I64;
}

typedef struct tri_dataset_info {
    int64_t count;                 /* samples */
    tri_shape sample;              /* images: H W C */
    tri_dtype dtype;               /* as stored: u8, f32, f64, ... */
    tri_dtype target_dtype;        /* i32 (classes) or f32 */
    tri_shape target;              /* scalar for classes */
    int64_t classes;               /* 0: real targets */
    const struct tri_table *table; /* of a table: its columns; the data set's, NULL: there are none */
    const char *decoders;          /* libraries and versions that the samples' bits depend on; NULL: none */
    float mean[16], deviation[16]; /* per channel of the data in [0, 1] (bytes) or as stored, where known; deviation[0]
                                      0: unknown */
} tri_dataset_info;

/* What classes are called where the data have texts for them: class i is texts[i]. texts NULL: they are numbers. */
typedef struct tri_class_names {
    const char *const *texts;
    int64_t count;
} tri_class_names;

struct tri_augment;

/* One row per format. */
typedef struct tri_dataset_ops {
    const char *name;
    const char *does;
    bool (*can)(const tri_data_config *config); /* for format auto: looks at names and first bytes */
    /* Whether there are files of their own for a part, or, where `splits`, a fraction. NULL: for training and test. */
    bool (*has)(const tri_data_config *config, tri_data_part part);
    bool
        splits; /* `open` knows of fractions; else only parts that there are are opened, and a fraction taken of them */
    bool streams; /* files may be larger than memory: samples are shuffled in blocks that are read together */
    tri_status (*open)(const tri_data_config *config, tri_data_part part, tri_dataset **out);
    /* Or in place of `read`, for data that stay where they are: one sample of an epoch, as the model gets it, a pure
     * function of (seed, epoch, index) that threads call at once. NULL: `read` is there. */
    tri_status (*draw)(const tri_dataset *dataset, uint64_t seed, int64_t epoch, int64_t index, int32_t *sample,
                       int32_t *target);
    /* Copies the samples indices[0 .. count) (ascending) to samples and targets, one after the other; reads the file
     * from front to back once. targets are i32 or f32. */
    tri_status (*read)(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples, void *targets);
    /* Or in place of `read`, for samples that are decoded when they are needed: one sample as stored, and its target
     * (either may be NULL), a pure function of (seed of augment, epoch, index) that threads call at once. augment NULL:
     * no augmentation; of it only what the stored pixels must be there for is done. NULL: `read` or `draw` is there. */
    tri_status (*fetch)(tri_dataset *dataset, const struct tri_augment *augment, int64_t epoch, int64_t index,
                        void *sample, void *target);
    /* The class of each sample that the files have, -1: none of them. For classes. NULL: samples are read for it. */
    tri_status (*classes)(tri_dataset *dataset, int32_t *classes);
    /* Learns from the training samples, those of these places (ascending) among all, before any is read. NULL: nothing.
     */
    tri_status (*learn)(tri_dataset *dataset, const tri_data_config *config, const int64_t *places, int64_t count);
    /* Hashes of the content, where reading samples would take too long. NULL: of what `read` gives. */
    tri_status (*identify)(tri_dataset *dataset, uint64_t hashes[2]);
    /* One sentence for people: what was found, without a period. NULL: nothing to say. */
    tri_status (*describe)(const tri_dataset *dataset, tri_string *out);
    /* See tri_dataset_rename(). NULL: classes of this format are numbers. */
    tri_status (*rename)(tri_dataset *dataset, const tri_class_names *names);
    void (*close)(tri_dataset *dataset);
} tri_dataset_ops;

/* First member of each implementation's struct. */
struct tri_dataset {
    const tri_dataset_ops *ops;
    tri_dataset_info info;
    tri_class_names names;              /* of its classes; its own */
    int64_t stride;                     /* sample i of the set is number i * stride of those it had at first; 0: 1 */
    int64_t source_count;               /* samples that ops has */
    int64_t *chosen;                    /* which of the samples of ops those are, ascending; NULL: all */
    struct tri_table *table;            /* held; NULL: it is none */
    struct tri_tokenizer *tokenizer;    /* of the tokens, where it is known; closed with the data set */
    int holders;                        /* besides the one who opened it */
    unsigned char *kept, *kept_targets; /* all that ops has, one after the other; NULL: it is read each time */
};

/* A copy of the texts in the arena. */
tri_status tri_class_names_copy(tri_arena *arena, const tri_class_names *from, tri_class_names *out);

/* Opens a part of the data; checks headers, lengths, targets' range (while reading). TRI_ENOTFOUND: there is none. */
tri_status tri_dataset_open(const tri_data_config *config, tri_data_part part, tri_dataset **out);
/* "training", ... */
const char *tri_data_part_name(tri_data_part part);
/* Whether the options, or files, have this part; false also where that is not known. */
bool tri_dataset_has(const tri_data_config *config, tri_data_part part);
/* How many samples each class has. counts NULL: they are not known without reading all samples. tri_free() it. */
tri_status tri_dataset_count_classes(tri_dataset *dataset, int64_t **counts);
/* The samples indices[0 .. count), ascending; see tri_dataset_ops.read. TRI_EINVAL when one is out of range. */
tri_status tri_dataset_read(tri_dataset *dataset, const int64_t *indices, int64_t count, void *samples, void *targets);
/* Numbers the classes as somebody else has: a model that was trained on other data, of which some classes may be
 * missing here. For a set that was just opened. TRI_EFORMAT: a target is none of them; TRI_ECONFIG: targets here are
 * numbers. */
tri_status tri_dataset_rename(tri_dataset *dataset, const tri_class_names *names);
/* Measures mean and deviation of the channels, where data.normalize needs them and nobody knows them: of at most 1,024
 * samples at equal distances. The same for everybody who has the same data. */
tri_status tri_dataset_measure(tri_dataset *dataset, const tri_data_config *config);
/* Leaves at most `count` samples of the set, at equal distances; for an open set that was not thinned before. */
void tri_dataset_thin(tri_dataset *dataset, int64_t count);
/* Where sample i of the set is among those of ops. */
static inline int64_t tri_dataset_place(const tri_dataset *dataset, int64_t i)
{
    i = dataset->stride > 1 ? i * dataset->stride : i;
    return dataset->chosen ? dataset->chosen[i] : i;
}
/* Reads all samples now, if they take no more than this many bytes, and answers later reads from memory. Whatever is
 * wrong with them is said by those reads. */
void tri_dataset_keep(tri_dataset *dataset, size_t limit_nbytes);
/* NULL does nothing. The last one of those who hold it closes it. */
void tri_dataset_close(tri_dataset *dataset);
/* One more who will close it. */
void tri_dataset_hold(tri_dataset *dataset);

/* Which sample is where. All pure. */
typedef struct tri_sampler {
    uint64_t seed;
    int64_t count;  /* samples of the data set */
    int64_t batch;  /* samples of a global batch */
    int64_t shards; /* V */
    bool shuffle;
    int64_t block, buffer; /* samples: block > 1: a shuffle of blocks, and of the samples in each buffer of them, for
                              more samples than those of a buffer; else of all samples */
} tri_sampler;
/* Sets what follows from the data set: count, block and buffer. */
void tri_sampler_cover(tri_sampler *sampler, const tri_dataset *dataset, const tri_data_config *config);
/* Planned samples of shard v in a full batch: (v + 1) B / V - v B / V. */
int64_t tri_sampler_rows(const tri_sampler *sampler, int64_t shard);
/* Samples of part v of the data set, and its place in the seed's permutation. */
int64_t tri_sampler_part_count(const tri_sampler *sampler, int64_t shard);
/* Index in the data set of the k-th sample of part v (k in storage order: the order before an epoch's shuffle). */
int64_t tri_sampler_part_index(const tri_sampler *sampler, int64_t shard, int64_t k);
/* Position in part v (storage order) of the k-th sample that shard v takes in `epoch`. */
int64_t tri_sampler_order(const tri_sampler *sampler, int64_t epoch, int64_t shard, int64_t k);
/* The same of samples first to first + count - 1, faster than one by one. */
void tri_sampler_orders(const tri_sampler *sampler, int64_t epoch, int64_t shard, int64_t first, int64_t count,
                        int64_t *order);
/* Batches of one epoch, the last may be short. */
int64_t tri_sampler_steps(const tri_sampler *sampler);
/* Which samples were used, as one number: the sum of their marks, TRI_MARK_LANES lanes of TRI_MARK_BITS bits that do
 * not carry into each other, so that it can be formed in any order, also lane by lane in f32. */
#define TRI_MARK_LANES 4
#define TRI_MARK_BITS  11
uint64_t tri_sampler_mark(int64_t index);
uint64_t tri_sampler_marks_add(uint64_t left, uint64_t right);
/* The samples of shard v in a step as the plan has them: their indices to `indices`, which has room for
 * tri_sampler_rows(); returns how many. */
int64_t tri_sampler_batch(const tri_sampler *sampler, int64_t step, int64_t shard, int64_t *indices);

#define TRI_LOADER_THREAD "data" /* name of the thread that prepares batches ahead */

typedef struct tri_loader tri_loader;
typedef struct tri_held tri_held; /* samples in memory (held.h) */

/* One worker's shards of one batch, ready to compute; the loader's until the next tri_loader_next. */
typedef struct tri_loader_batch {
    int64_t step; /* global, from 0 */
    int64_t epoch;
    int shards;                  /* of this worker */
    const int32_t *rows;         /* [shards] valid samples */
    const int64_t *first_sample; /* [shards] number of the first sample within the global batch */
    const void *input;           /* [shards * rows_max, sample...], f32 (i32 for integer tokens), padded with zeros */
    const void *target;          /* i32 or f32 */
    const void *input_there, *target_there; /* the same for kernels of setup->device; NULL: they read the host's */
    uint64_t marks; /* of the samples that were put into it (tri_sampler_mark); 0: none is wanted */
    /* What it took the caller's thread: it waited for whoever prepares it, and could have gone on; it prepared it
     * itself, processor time. What is left of the call it was stopped, had no core, or waited for a disk. */
    int64_t waited_ns, prepared_ns;
    /* Both NULL where the setup says that they are not read. */
} tri_loader_batch;

/* The threads of the step: calls body(arg, tile) for tiles 0 to tile_count - 1, several at once, and waits. */
typedef struct tri_loader_crew {
    void (*run)(int threads, int64_t tile_count, void (*body)(void *arg, int64_t tile), void *arg);
    int threads;
    int free_cores; /* for further threads of this worker */
} tri_loader_crew;

typedef struct tri_loader_setup {
    tri_sampler sampler;
    int64_t first_shard, shard_count; /* of this worker */
    int64_t rows_max;                 /* samples a shard is padded to */
    bool training;                    /* augmentation on */
    bool skips_input, skips_target;   /* nobody reads them here */
    int64_t rows;                     /* of the embedding that reads whole numbers: they are below; 0: not known */
    int64_t first_step;               /* where to begin: resume is this one number */
    int64_t end_step;                 /* after the last one */
    tri_held *held; /* borrowed: has the samples of an earlier loader, of any parts, and keeps those of this one when it
                     * is closed; NULL: all are read, and go with it */
    tri_loader_crew crew;
    /* Whose kernels read the batches: each is copied there as soon as it is prepared, beside what the device does, and
     * work that is queued behind tri_loader_next() finds it. NULL: they read the host's memory. */
    const tri_device *device;
} tri_loader_setup;

/* Reads this worker's parts into memory (as stored: bytes stay bytes; of setup->held what is missing), closes nothing;
 * a thread then prepares batches ahead, or the crew does when asked (data.prefetch). `dataset` must stay open only
 * during this call. Data that stay where they are are not read: the loader holds the data set. */
tri_status tri_loader_open(tri_dataset *dataset, const tri_data_config *config, const tri_loader_setup *setup,
                           tri_loader **out);
/* The next batch, in order of steps; waits until it is prepared. */
tri_status tri_loader_next(tri_loader *loader, tri_loader_batch *batch);
/* The next batch is that of this step, which is not before those that were taken. */
void tri_loader_seek(tri_loader *loader, int64_t step);
/* Of any step, those of this loader's shards from its `first`-th on, prepared now; where nothing is prepared ahead
 * (data.prefetch 0), and tri_loader_next() is not called. */
tri_status tri_loader_part(tri_loader *loader, int64_t step, int64_t first, int64_t count, tri_loader_batch *batch);
/* Bytes of samples held. */
size_t tri_loader_nbytes(const tri_loader *loader);
void tri_loader_close(tri_loader *loader);

#endif
