/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign_keys.c: what options of PyTorch, Hugging Face's Trainer, Lightning and Keras are called here, and options
 * that had another name.
 *
 * A row has a key of ours, or a sentence where there is none that means the same.
 */
#include <string.h>

#include "train/core/config.h"

#define TELLS_EACH_STEP "each step is in RUN/metrics.jsonl, monitor.step_every_s makes them fewer"
#define IS_NO_SERVICE                                                                                                  \
    "there is no client of a tracking service: monitor.tensorboard writes event files, RUN/metrics.jsonl has a line "  \
    "a step"
#define STOPS_NOT_EARLY "there is no early stop: checkpoint.keep_best keeps the weights of the least test loss"
#define LOSS_FOLLOWS    "the loss follows from the data: cross entropy for classes, squared error for real targets"
#define ACCUMULATES     "train.batch is the whole batch of a step, train.shards_at_once bounds what is in memory at once"
#define IS_OUT          "the run folder is --out FOLDER"
#define IS_PRECISION    "train.precision is f32, bf16 or f16"
#define IS_ZERO         "parallel.sync is allreduce, zero1, zero2 or zero3"
#define IS_COUNT        "the number of workers is -n N"
#define IS_DEVICE       "the device of each rank is train.device"
#define IS_RESUME       "a run is resumed by --resume RUN"

const tri_foreign_key tri_foreign_keys[] = {
    {"learning_rate", "optim.lr", NULL},
    {"base_lr", "optim.lr", NULL},
    {"max_lr", "optim.lr", NULL},
    {"lr", "optim.lr", NULL},
    {"optimizer", "optim.name", NULL},
    {"betas", NULL, "want optim.beta1 and optim.beta2"},
    {"adam_beta1", "optim.beta1", NULL},
    {"adam_beta2", "optim.beta2", NULL},
    {"eps", "optim.epsilon", NULL},
    {"adam_epsilon", "optim.epsilon", NULL},
    {"wd", "optim.weight_decay", NULL},
    {"warmup", "optim.warmup_steps", NULL},
    {"warmup_iters", "optim.warmup_steps", NULL},
    {"num_warmup_steps", "optim.warmup_steps", NULL},
    {"warmup_ratio", NULL, "optim.warmup_steps takes a number of steps"},
    {"lr_scheduler", "optim.schedule", NULL},
    {"lr_scheduler_type", "optim.schedule", NULL},
    {"scheduler", "optim.schedule", NULL},
    {"lr_decay_iters", "optim.schedule_steps", NULL},
    {"step_size", "optim.step_every", NULL},
    {"gamma", "optim.step_factor", NULL},
    {"max_grad_norm", "optim.clip_norm", NULL},
    {"grad_clip", "optim.clip_norm", NULL},
    {"clip_grad_norm", "optim.clip_norm", NULL},
    {"gradient_clip_val", "optim.clip_norm", NULL},
    {"clipnorm", "optim.clip_norm", NULL},
    {"batch_size", "train.batch", NULL},
    {"train_batch_size", "train.batch", NULL},
    {"global_batch_size", "train.batch", NULL},
    {"per_device_train_batch_size", NULL, ACCUMULATES},
    {"micro_batch_size", NULL, ACCUMULATES},
    {"gradient_accumulation_steps", NULL, ACCUMULATES},
    {"accumulate_grad_batches", NULL, ACCUMULATES},
    {"grad_accum_steps", NULL, ACCUMULATES},
    {"num_epochs", "train.epochs", NULL},
    {"num_train_epochs", "train.epochs", NULL},
    {"max_epochs", "train.epochs", NULL},
    {"n_epochs", "train.epochs", NULL},
    {"max_steps", "train.steps", NULL},
    {"num_steps", "train.steps", NULL},
    {"total_steps", "train.steps", NULL},
    {"max_iters", "train.steps", NULL},
    {"random_seed", "train.seed", NULL},
    {"manual_seed", "train.seed", NULL},
    {"fp16", NULL, IS_PRECISION},
    {"bf16", NULL, IS_PRECISION},
    {"amp", NULL, IS_PRECISION},
    {"mixed_precision", NULL, IS_PRECISION},
    {"dtype", NULL, IS_PRECISION},
    {"torch_dtype", NULL, IS_PRECISION},
    {"num_workers", NULL, "threads of each worker prepare batches (data.prefetch, data.threads); " IS_COUNT},
    {"dataloader_num_workers", NULL, "threads of each worker prepare batches (data.prefetch, data.threads)"},
    {"device", "train.device", NULL},
    {"cuda", NULL, IS_DEVICE},
    {"gpus", NULL, IS_DEVICE},
    {"accelerator", NULL, IS_DEVICE},
    {"early_stopping", NULL, STOPS_NOT_EARLY},
    {"early_stopping_patience", NULL, STOPS_NOT_EARLY},
    {"patience", NULL, STOPS_NOT_EARLY},
    {"wandb", NULL, IS_NO_SERVICE},
    {"mlflow", NULL, IS_NO_SERVICE},
    {"report_to", NULL, IS_NO_SERVICE},
    {"logger", NULL, IS_NO_SERVICE},
    {"loss", NULL, LOSS_FOLLOWS},
    {"loss_fn", NULL, LOSS_FOLLOWS},
    {"criterion", NULL, LOSS_FOLLOWS},
    {"metrics", NULL, "accuracy, and of tokens perplexity, are always reported"},
    {"gradient_checkpointing", NULL, "gpt2 and llama have model.checkpoint=true"},
    {"activation_checkpointing", NULL, "gpt2 and llama have model.checkpoint=true"},
    {"label_smoothing", NULL, "want model.smoothing"},
    {"label_smoothing_factor", NULL, "want model.smoothing"},
    {"dropout", NULL, "dropout is a field of the model, or a layer"},
    {"model_name_or_path", "model.from", NULL},
    {"pretrained", "model.from", NULL},
    {"save_steps", "checkpoint.every_steps", NULL},
    {"save_total_limit", "checkpoint.keep", NULL},
    {"load_best_model_at_end", "checkpoint.keep_best", NULL},
    {"save_best", "checkpoint.keep_best", NULL},
    {"resume", NULL, IS_RESUME},
    {"resume_from_checkpoint", NULL, IS_RESUME},
    {"output_dir", NULL, IS_OUT},
    {"out_dir", NULL, IS_OUT},
    {"log_dir", NULL, IS_OUT},
    {"eval_steps", "train.eval_every_steps", NULL},
    {"eval_interval", "train.eval_every_steps", NULL},
    {"logging_steps", NULL, TELLS_EACH_STEP},
    {"log_interval", NULL, TELLS_EACH_STEP},
    {"block_size", "data.context", NULL},
    {"seq_len", "data.context", NULL},
    {"sequence_length", "data.context", NULL},
    {"max_seq_length", "data.context", NULL},
    {"max_length", "data.context", NULL},
    {"validation_split", "data.validation", NULL},
    {"img_size", "data.image_size", NULL},
    {"input_size", "data.image_size", NULL},
    {"resize", "data.image_size", NULL},
    {"random_resized_crop", "data.random_crop", NULL},
    {"horizontal_flip", "data.flip", NULL},
    {"random_horizontal_flip", "data.flip", NULL},
    {"random_erasing", "data.erase", NULL},
    {"color_jitter", NULL, "data.brightness, data.contrast and data.saturation are its parts"},
    {"val_split", "data.validation", NULL},
    {"test_size", "data.test", NULL},
    {"dataset", "data.path", NULL},
    {"data_dir", "data.path", NULL},
    {"train_file", "data.path", NULL},
    {"tokenizer_name", "data.tokenizer", NULL},
    {"strategy", "parallel.sync", NULL},
    {"fsdp", NULL, IS_ZERO},
    {"deepspeed", NULL, IS_ZERO},
    {"zero_stage", NULL, IS_ZERO},
    {"tensor_parallel_size", "parallel.tensor", NULL},
    {"pipeline_parallel_size", "parallel.pipeline", NULL},
    {"nproc_per_node", NULL, IS_COUNT},
    {"world_size", NULL, IS_COUNT},
};
const tri_renamed tri_renamed_keys[] = {
    {"data.test_part", "data.test"},
    {"data.target_column", "data.target"},
    {"data.target=-1", "data.target=[]"},
    {"optim.final_factor", "optim.final_lr_fraction"},
    {"optim.fall_part", "optim.decay_fraction"},
    {"optim.fall_shape", "optim.decay_shape"},
    {"parallel.compress_keep", "parallel.compress_fraction"},
    {"parallel.compress_rest", "parallel.compress_residual"},
    {"ps.deal", "ps.schedule"},
    {"ps.schedule=share", "ps.schedule=static"},
    {"ps.schedule=demand", "ps.schedule=dynamic"},
    {"train.on_straggler=tell", "train.on_straggler=warn"},
    {NULL, NULL},
};

const int tri_foreign_key_count = TRI_COUNT_OF(tri_foreign_keys);

const tri_foreign_key *tri_foreign_key_find(const char *name)
{
    for (int i = 0; i < tri_foreign_key_count; i++)
        if (strcmp(tri_foreign_keys[i].name, name) == 0)
            return &tri_foreign_keys[i];
    return NULL;
}
