/* Tuckfold's C API: tensors into fewer bytes and back, for C and other languages.
 *
 *   const int64_t shape[] = {64, 3, 256, 256};
 *   tuckfold_tensor images = {.data = pixels, .dtype = TUCKFOLD_F32, .rank = 4, .shape = shape};
 *   tuckfold_plan* plan;
 *   size_t bytes;
 *   if (tuckfold_plan_get("dct_chop(keep=4)", TUCKFOLD_F32, 4, shape, &plan) != TUCKFOLD_OK) {
 *     return puts(tuckfold_last_error());
 *   }
 *   const size_t room = tuckfold_plan_layout(plan)->max_bytes;
 *   void* packed = malloc(room);
 *   tuckfold_pack(plan, &images, packed, room, NULL, &bytes);
 *   tuckfold_unpack(plan, packed, bytes, &images, NULL);
 *   tuckfold_plan_release(plan);
 *
 * The rules are those of tuckfold/codec.h. Functions return a status, never throw and never print;
 * all may be called from any thread, and several threads may use one spec or plan at once.
 */
#ifndef TUCKFOLD_C_H_
#define TUCKFOLD_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUCKFOLD_C_API __attribute__((visibility("default")))

/* ---- what went wrong: the exit codes of the command line tool -------------------------------- */

enum {
  TUCKFOLD_OK = 0,
  TUCKFOLD_INVALID_ARGUMENT = 2, /* the call cannot be satisfied */
  TUCKFOLD_CORRUPT_DATA = 3,     /* bytes truncated, sizes that do not fit */
  TUCKFOLD_UNSUPPORTED = 4,      /* valid, but not here */
  TUCKFOLD_IO = 5,               /* the system refused, memory included */
  TUCKFOLD_INTERNAL = 70         /* a bug of ours */
};
typedef int32_t tuckfold_status;

/* The message and the status of this thread's last call that failed. Success changes neither. The
   message stays valid until the next failure; before the first it is empty, with TUCKFOLD_OK. */
TUCKFOLD_C_API const char* tuckfold_last_error(void);
TUCKFOLD_C_API tuckfold_status tuckfold_last_status(void);
/* For layers above this API: set an error of their own, and clear the last one. */
TUCKFOLD_C_API tuckfold_status tuckfold_set_error(tuckfold_status status, const char* message);
TUCKFOLD_C_API void tuckfold_clear_error(void);

/* ---- tensors --------------------------------------------------------------------------------- */

enum {
  TUCKFOLD_F32 = 0,
  TUCKFOLD_F16 = 1,
  TUCKFOLD_BF16 = 2,
  TUCKFOLD_F64 = 3,
  TUCKFOLD_U8 = 4,
  TUCKFOLD_I32 = 5,
  TUCKFOLD_I64 = 6,
  TUCKFOLD_U16 = 7,
  TUCKFOLD_I16 = 8,
  TUCKFOLD_I8 = 9,
  TUCKFOLD_U32 = 10,
  TUCKFOLD_U64 = 11,
  TUCKFOLD_BOOL = 12 /* a byte of 0 or 1 */
};
/* Every dtype, as a JSON array in the order of these numbers; valid for the life of the process:
   [{"name": "f32", "code": 0, "bytes": 4, "kind": "float"}, …]; kinds are float, signed, unsigned
   and bool. */
TUCKFOLD_C_API const char* tuckfold_dtypes_json(void);
enum { TUCKFOLD_CPU = 0, TUCKFOLD_CUDA = 1 };
enum { TUCKFOLD_MAX_RANK = 64 };

/* A tensor's address, dtype, shape and strides. */
typedef struct tuckfold_tensor {
  void* data;             /* only read by tuckfold_pack */
  int32_t dtype;          /* TUCKFOLD_F32 … */
  int32_t rank;           /* 0 … TUCKFOLD_MAX_RANK */
  const int64_t* shape;   /* of rank axes; may be NULL for rank 0 */
  const int64_t* strides; /* in elements, zero and negative ones too; NULL: row-major */
  int32_t device;         /* TUCKFOLD_CPU or TUCKFOLD_CUDA */
} tuckfold_tensor;

/* ---- naming a codec -------------------------------------------------------------------------- */

/* A codec or a chain, parsed once and never changed. */
typedef struct tuckfold_spec tuckfold_spec;

TUCKFOLD_C_API tuckfold_status tuckfold_spec_parse(const char* text, tuckfold_spec** spec);
TUCKFOLD_C_API void tuckfold_spec_free(tuckfold_spec* spec); /* NULL is allowed */

/* The canonical text, valid as long as spec. Equal specs have equal texts. */
TUCKFOLD_C_API const char* tuckfold_spec_text(const tuckfold_spec* spec);
/* Its stages with every parameter, valid as long as spec:
   [{"name": "dct_chop", "params": {"block": 8, "keep": 4, "shape": "square", …}}, …]. */
TUCKFOLD_C_API const char* tuckfold_spec_json(const tuckfold_spec* spec);
/* 1 if both name the same codec with the same parameters, else 0. */
TUCKFOLD_C_API int32_t tuckfold_spec_equal(const tuckfold_spec* a, const tuckfold_spec* b);

/* Every codec of this build with its parameters, as a JSON array, valid for the life of
   the process. */
TUCKFOLD_C_API const char* tuckfold_codecs_json(void);

/* ---- packing --------------------------------------------------------------------------------- */

/* What packing a tensor of some dtype and shape takes. */
typedef struct tuckfold_layout {
  size_t max_bytes;                 /* room that tuckfold_pack needs in its output */
  size_t workspace_bytes;           /* scratch that packing and unpacking each need */
  int32_t fixed;                    /* 1 where exactly max_bytes are always written, else 0 */
  int32_t dtype;                    /* the packed bytes, max_bytes of them, seen as a tensor: */
  int32_t rank;                     /*   row-major, */
  int64_t shape[TUCKFOLD_MAX_RANK]; /* of this shape */
} tuckfold_layout;

/* A spec laid out for tensors of one dtype and shape. */
typedef struct tuckfold_plan tuckfold_plan;

/* The plan for a spec's text, a dtype and a shape. It is made on the first call; a thread keeps the
   plans that it used last, so that asking again takes no time. The caller owns a reference until
   tuckfold_plan_release. */
TUCKFOLD_C_API tuckfold_status tuckfold_plan_get(const char* spec, int32_t dtype, int32_t rank,
                                                 const int64_t* shape, tuckfold_plan** plan);
TUCKFOLD_C_API void tuckfold_plan_release(tuckfold_plan* plan); /* NULL is allowed */
TUCKFOLD_C_API const tuckfold_layout* tuckfold_plan_layout(const tuckfold_plan* plan);

/* Calls body over ranges that together cover 0 … parts, and returns when all are done. */
typedef void (*tuckfold_range_body)(void* context, int64_t begin, int64_t end);
typedef void (*tuckfold_executor)(void* executor_data, int64_t parts, int32_t threads,
                                  tuckfold_range_body body, void* context);

/* How to run; all zeros but struct_bytes means the defaults, as does NULL in its place. */
typedef struct tuckfold_options {
  size_t struct_bytes; /* sizeof(tuckfold_options), so that fields can be added */
  uint64_t seed;       /* for stochastic rounding; give each tensor its own */
  int32_t threads;     /* 0: every core */
  void* workspace;     /* of layout.workspace_bytes; NULL: allocated for the call */
  size_t workspace_bytes;
  tuckfold_executor executor; /* threads of the caller's; NULL: the library's own pool */
  void* executor_data;
  /* For tensors of TUCKFOLD_CUDA: packed bytes and workspace are on the current device, too, and
     the work is queued on the stream. tuckfold/codec.h says which calls synchronize. */
  void* stream; /* a cudaStream_t; NULL: the default one */
  uint64_t*
      device_result; /* where the device can write: after tuckfold_pack the bytes written, after
                  tuckfold_unpack 0, or TUCKFOLD_REFUSED in place of a status; may be NULL */
  const uint64_t* device_seed; /* device memory with a number that is added to seed; may be NULL */
} tuckfold_options;

#define TUCKFOLD_REFUSED UINT64_MAX

/* Writes the packed bytes to the front of out, and how many there are to *written. */
TUCKFOLD_C_API tuckfold_status tuckfold_pack(const tuckfold_plan* plan, const tuckfold_tensor* in,
                                             void* out, size_t out_bytes,
                                             const tuckfold_options* options, size_t* written);

/* Fills out, which has the dtype and shape of what was packed. */
TUCKFOLD_C_API tuckfold_status tuckfold_unpack(const tuckfold_plan* plan, const void* packed,
                                               size_t packed_bytes, const tuckfold_tensor* out,
                                               const tuckfold_options* options);

/* Fills out as tuckfold_unpack does, then with scale[c] * x + shift[c], plus add where that is not NULL,
   and with relu max(y, 0). The channel c of value i, in row-major order, is i / inner % channels; see tuckfold/unpack_then.h. */
typedef struct tuckfold_then {
  const float* scale; /* channels of them each, on the device of the tensor */
  const float* shift;
  int64_t channels;
  int64_t inner;
  int32_t relu;
  const void* add;        /* a tensor with the dtype, shape, strides and device of out, or NULL */
  const void* packed_add; /* the same as the plan packed it, or NULL */
  const float* add_scale; /* channels of them for packed_add, or NULL */
  const float* add_shift;
  const void* gate; /* bits of values that stay above 0 while others become 0, or NULL */
} tuckfold_then;
TUCKFOLD_C_API tuckfold_status tuckfold_unpack_then(const tuckfold_plan* plan, const void* packed,
                                                    size_t packed_bytes, const tuckfold_tensor* out,
                                                    const tuckfold_then* then,
                                                    const tuckfold_options* options);

/* Fills out with weight[c] * (x - mean[c]) * invstd[c] + bias[c], rounded to the dtype; with add, which
   may be NULL, that plus add, rounded again; and with relu max(y, 0). The last product and sum are
   rounded together, as by batch_norm_elemt of PyTorch on a GPU. Tensors of f32, f16 or bf16, of one
   shape, contiguous; out may be one of the others. Channels as in tuckfold_then. */
typedef struct tuckfold_normalization {
  const float* mean; /* channels of them each, on the device of the tensors */
  const float* invstd;
  const float* weight;
  const float* bias;
  int64_t channels;
  int64_t inner;
  int32_t relu;
} tuckfold_normalization;
TUCKFOLD_C_API tuckfold_status tuckfold_normalize(const tuckfold_tensor* x,
                                                  const tuckfold_tensor* add,
                                                  const tuckfold_tensor* out,
                                                  const tuckfold_normalization* how,
                                                  const tuckfold_options* options);

/* Fills out with weight[c] * (invstd[r] * (x - mean[r])) + bias[c] for value c of row r, as a layer
   normalization with known statistics does. out may be of another dtype of the three. */
typedef struct tuckfold_row_normalization {
  const float* mean; /* one for each row, on the device of the tensors */
  const float* invstd;
  const float* weight; /* one for each value of a row */
  const float* bias;
  int64_t length; /* of a row */
} tuckfold_row_normalization;
TUCKFOLD_C_API tuckfold_status tuckfold_normalize_rows(const tuckfold_tensor* x,
                                                       const tuckfold_tensor* out,
                                                       const tuckfold_row_normalization* how,
                                                       const tuckfold_options* options);

/* Like tuckfold_unpack, and then the same of what was unpacked. out is contiguous. On a CUDA device only for
   block_quant of 2, 4 and 8 bits and rows of a multiple of 8 values, where out has the plan's dtype or the plan's is
   f32; TUCKFOLD_UNSUPPORTED for others, which are unpacked before. */
TUCKFOLD_C_API tuckfold_status tuckfold_unpack_rows(const tuckfold_plan* plan, const void* packed,
                                                    size_t packed_bytes, const tuckfold_tensor* out,
                                                    const tuckfold_row_normalization* how,
                                                    const tuckfold_options* options);

/* Like tuckfold_unpack, and then GELU without approximation. */
TUCKFOLD_C_API tuckfold_status tuckfold_unpack_gelu(const tuckfold_plan* plan, const void* packed,
                                                    size_t packed_bytes, const tuckfold_tensor* out,
                                                    const tuckfold_options* options);

/* The cross entropy of each row of logits, rows x classes of f32, f16 or bf16, contiguous: 0 for rows of the class `ignored`,
   NaN for a class that there is not. sums has what the gradient needs, for each row. */
typedef struct tuckfold_row_sum {
  float most; /* the largest logit */
  float sum;  /* of exp(x - most) */
} tuckfold_row_sum;
TUCKFOLD_C_API tuckfold_status tuckfold_cross_entropy(const tuckfold_tensor* logits,
                                                      const int64_t* classes, int64_t ignored,
                                                      float* losses, tuckfold_row_sum* sums,
                                                      const tuckfold_options* options);

/* Fills out, which has the dtype and shape of logits, with scale[0] times the gradient of each row's loss. All is on
   the device of the logits. */
TUCKFOLD_C_API tuckfold_status
tuckfold_cross_entropy_gradient(const tuckfold_tensor* logits, const int64_t* classes,
                                int64_t ignored, const tuckfold_row_sum* sums, const float* scale,
                                const tuckfold_tensor* out, const tuckfold_options* options);

/* What a network takes of an image: this part, of the height and width of the output. It may reach
   past the edges, where pixels are 0. */
typedef struct tuckfold_window {
  int32_t top, left;
  int32_t mirrored; /* 1: left and right change places */
} tuckfold_window;
typedef struct tuckfold_image_options {
  size_t struct_bytes;   /* sizeof(tuckfold_image_options) */
  int32_t channels_last; /* 1: samples are H x W x C, else C x H x W; with two axes H x W */
  size_t channels;       /* of scale and add */
  const float* scale;    /* a pixel p of channel c becomes p * scale[c] + add[c]; NULL: p itself */
  const float* add;
} tuckfold_image_options;
/* Fills images of `out`, N x C x H x W of f32, f16 or bf16 and any strides, from packed samples of u8,
   u16 or floats: in one pass over their pixels, see tuckfold/unpack_images.h. windows has one for each
   sample, or is NULL; places has the image that each becomes, or is NULL. They are on the device of the
   tensor, as are scale and add. options->workspace has tuckfold_unpack_images_bytes. */
TUCKFOLD_C_API tuckfold_status tuckfold_unpack_images(
    const tuckfold_plan* plan, const void* packed, size_t packed_bytes,
    const tuckfold_window* windows, const int32_t* places, const tuckfold_image_options* images,
    const tuckfold_tensor* out, const tuckfold_options* options);
TUCKFOLD_C_API size_t tuckfold_unpack_images_bytes(const tuckfold_plan* plan, int32_t device);

/* Packs and unpacks count tensors with a plan each, all of one spec: in[i] to the front of out[i] with
   seed + i. They share a workspace of the largest tensor's size; device_result points to a
   number for each. On a CUDA device dct_chop and dct_quant pack many in one launch. */
TUCKFOLD_C_API tuckfold_status tuckfold_pack_many(const tuckfold_plan* const* plans, size_t count,
                                                  const tuckfold_tensor* in, void* const* out,
                                                  const size_t* out_bytes,
                                                  const tuckfold_options* options, size_t* written);
TUCKFOLD_C_API tuckfold_status tuckfold_unpack_many(const tuckfold_plan* const* plans, size_t count,
                                                    const void* const* packed,
                                                    const size_t* packed_bytes,
                                                    const tuckfold_tensor* out,
                                                    const tuckfold_options* options);

/* ---- structured layers, see tuckfold/structured.h ---------------------------------------------- */

/* A linear layer with a structure and sizes, never changed. */
typedef struct tuckfold_structured tuckfold_structured;

/* "butterfly(tied=true)", and how many features it takes and gives. */
TUCKFOLD_C_API tuckfold_status tuckfold_structured_make(const char* text, int64_t in, int64_t out,
                                                        tuckfold_structured** layer);
TUCKFOLD_C_API void tuckfold_structured_free(tuckfold_structured* layer); /* NULL is allowed */

/* As long as layer lives: {"text": "butterfly(tied=true)", "in": 784, "out": 10, "weights": [{"name":
   "twiddle", "shape": [1, 1, 1023, 2, 2], "trained": true, "deviation": 0.7}], "weight_count": 4092,
   "flops_per_sample": 30720}. */
TUCKFOLD_C_API const char* tuckfold_structured_json(const tuckfold_structured* layer);
/* Every family with its options, as a JSON array; stays for good. */
TUCKFOLD_C_API const char* tuckfold_structures_json(void);
/* 1 where kernels of this build take tensors of TUCKFOLD_CUDA and this dtype, else 0. */
TUCKFOLD_C_API int32_t tuckfold_structured_has_cuda(const tuckfold_structured* layer,
                                                    int32_t dtype);

/* Memory of the current CUDA device that tuckfold_structured_forward (backward 0) or _backward (1) needs
   for so many samples, in options->workspace; where that is NULL it is allocated in the order of the
   stream. */
TUCKFOLD_C_API size_t tuckfold_structured_workspace_bytes(const tuckfold_structured* layer,
                                                          int32_t dtype, int64_t samples,
                                                          int32_t backward);

/* Bytes that a training step holds because of one layer, see StepMemory in tuckfold/structured.h. */
typedef struct tuckfold_step_memory {
  int64_t weights, gradients, optimizer, saved, passing, workspace;
} tuckfold_step_memory;
/* `states` of the optimizer for each weight; threads 0 is every core. */
TUCKFOLD_C_API tuckfold_status tuckfold_structured_step_memory(const tuckfold_structured* layer,
                                                               int32_t dtype, int64_t samples,
                                                               int32_t bias, int32_t states,
                                                               int32_t threads,
                                                               tuckfold_step_memory* memory);

/* y = x W^T + bias for x of samples x in. `weights` are count tensors in the order of the JSON; the
   bias may be NULL. */
TUCKFOLD_C_API tuckfold_status tuckfold_structured_forward(
    const tuckfold_structured* layer, const tuckfold_tensor* x, const tuckfold_tensor* weights,
    size_t count, const tuckfold_tensor* bias, const tuckfold_tensor* y,
    const tuckfold_options* options);
/* Gradients from that of y. Those of x and of the bias may be NULL, as may be grad_weights and the
   data of any of its count tensors; what is NULL is not computed. */
TUCKFOLD_C_API tuckfold_status tuckfold_structured_backward(
    const tuckfold_structured* layer, const tuckfold_tensor* x, const tuckfold_tensor* grad_y,
    const tuckfold_tensor* weights, size_t count, const tuckfold_tensor* grad_x,
    const tuckfold_tensor* grad_weights, const tuckfold_tensor* grad_bias,
    const tuckfold_options* options);

/* ---- frames: packed bytes that describe themselves, see docs/format.md -------------------------
 */

typedef struct tuckfold_frame {
  const char* codec; /* the spec's text, codec_bytes long, not ended by NUL */
  size_t codec_bytes;
  const void* packed; /* both point into the bytes that were read */
  size_t packed_bytes;
  size_t frame_bytes; /* of the whole frame; more may follow */
  int32_t dtype;
  int32_t rank;
  int64_t shape[TUCKFOLD_MAX_RANK];
} tuckfold_frame;

/* Bytes of a frame around so many packed bytes, and the frame itself. Refuses less than a 32768th of
   the bytes of a tensor of more than 1 GiB, which no reader would take. */
TUCKFOLD_C_API size_t tuckfold_frame_bytes(const tuckfold_plan* plan, size_t packed_bytes);
TUCKFOLD_C_API tuckfold_status tuckfold_write_frame(const tuckfold_plan* plan, const void* packed,
                                                    size_t packed_bytes, void* out,
                                                    size_t out_bytes);
/* Checks both checksums, and that the codec packs such a tensor to so many bytes. */
TUCKFOLD_C_API tuckfold_status tuckfold_read_frame(const void* bytes, size_t count,
                                                   tuckfold_frame* frame);

/* ---- files: samples of several arrays, see tuckfold/container.h ------------------------------- */

/* A .tuck file, or a manifest of several. Any number of threads may read at once, also in the
   child of a fork. */
typedef struct tuckfold_reader tuckfold_reader;

/* With strict 1, a file of which samples may be missing is TUCKFOLD_CORRUPT_DATA. */
TUCKFOLD_C_API tuckfold_status tuckfold_reader_open(const char* path, int32_t strict,
                                                    tuckfold_reader** reader);
TUCKFOLD_C_API void tuckfold_reader_close(tuckfold_reader* reader); /* NULL is allowed */

/* As long as reader lives: {"samples": 50000, "bytes": 38281216, "checksum": "9b1f6d3c6c2e8a50",
   "arrays": [{"name": "image", "dtype": "u8", "shape": [3, 32, 32], "codec": "dct_quant(rate=4)",
   "samples_per_chunk": 64, "fill": [], "chunks": 782, "packed_bytes": 38206064, "packed_alone": true,
   "codecs": ["dct_quant(rate=4)"]}, …], "metadata": {…}, "warnings": []}. "checksum" depends on every
   sample; "codecs" are those of all shards, and "packed_alone" says whether
   tuckfold_reader_gather_packed takes the array; "fill" has numbers as texts, since JSON has no NaN;
   each of "warnings" is a sentence that says which samples may be missing. */
TUCKFOLD_C_API const char* tuckfold_reader_json(const tuckfold_reader* reader);

/* Samples first … first + count of an array, by its place in the JSON, to `out`: of its dtype and
   shape with a leading axis of count samples. threads 0: every core. */
TUCKFOLD_C_API tuckfold_status tuckfold_reader_read(const tuckfold_reader* reader, size_t array,
                                                    int64_t first, int64_t count,
                                                    const tuckfold_tensor* out, int32_t threads);
/* The same for samples in any order, which may repeat. A chunk that has several is unpacked once. */
TUCKFOLD_C_API tuckfold_status tuckfold_reader_gather(const tuckfold_reader* reader, size_t array,
                                                      const int64_t* samples, size_t count,
                                                      const tuckfold_tensor* out, int32_t threads);

/* Images of samples in any order, scaled, in one pass over their pixels: `out` is count x C x H x W,
   of f32, f16 or bf16 and any strides. windows has one for each sample, or is NULL. */
TUCKFOLD_C_API tuckfold_status tuckfold_reader_gather_images(
    const tuckfold_reader* reader, size_t array, const int64_t* samples, size_t count,
    const tuckfold_window* windows, const tuckfold_image_options* options,
    const tuckfold_tensor* out, int32_t threads);

/* Packed samples of one codec: what tuckfold_unpack takes for a tensor of so many of them. */
typedef struct tuckfold_packed_part {
  const char* codec; /* until the thread's next such call */
  int64_t samples;
  size_t offset; /* in the room, a multiple of 256 */
  size_t bytes;
} tuckfold_packed_part;
/* Copies the packed bytes of samples to `room`, each codec's together; mostly there is one part. places
   has for the samples of all parts, in order, which of those asked for they are, and has room for
   count. *found is the number of parts and *needed the bytes of the room. If there is less room for either,
   nothing else is filled: call again with more. */
TUCKFOLD_C_API tuckfold_status tuckfold_reader_gather_packed(
    const tuckfold_reader* reader, size_t array, const int64_t* samples, size_t count, void* room,
    size_t room_bytes, int32_t* places, tuckfold_packed_part* parts, size_t most_parts,
    size_t* found, size_t* needed, int32_t threads);

/* Where a run of samples is stored, for programs that fetch a file part by part. */
typedef struct tuckfold_chunk {
  int64_t first, samples;
  uint64_t file;   /* the shard, by its place in the manifest; 0 without one */
  uint64_t offset; /* of the record in the file */
  uint64_t bytes;  /* of the record */
} tuckfold_chunk;
/* The chunks of an array in order, or with mask 1 those of its mask, which may have none: as many as
   there is room for. count is how many there are. */
TUCKFOLD_C_API tuckfold_status tuckfold_reader_chunks(const tuckfold_reader* reader, size_t array,
                                                      int32_t mask, tuckfold_chunk* chunks,
                                                      size_t room, size_t* count);

/* An array of a file to write. */
enum { TUCKFOLD_MEASURE = 1, TUCKFOLD_BOUND = 2 };
typedef struct tuckfold_array {
  const char* name;
  const char* codec; /* NULL: "zstd" */
  int32_t dtype;
  int32_t rank;              /* of one sample; a number has 0 */
  const int64_t* shape;      /* of one sample */
  int64_t samples_per_chunk; /* 0: what suits the codec */
  const double* fill;        /* values that stand for missing ones, and come back exactly */
  size_t fill_count;
  int32_t check;    /* TUCKFOLD_MEASURE: unpack every chunk and compare it with what was given;
                       TUCKFOLD_BOUND: and store it as it is where an error is above max_error */
  double max_error; /* for TUCKFOLD_BOUND */
} tuckfold_array;

enum {
  TUCKFOLD_CREATE = 0, /* a new file, PATH.partial until it is complete */
  TUCKFOLD_RESUME = 1, /* the same, going on with what a stopped writer left in PATH.partial */
  TUCKFOLD_APPEND = 2  /* after the samples of a file, or as another shard of a manifest */
};
typedef struct tuckfold_write_options {
  size_t struct_bytes;  /* sizeof(tuckfold_write_options); all else 0 means the defaults */
  int32_t mode;         /* TUCKFOLD_CREATE … */
  int32_t force;        /* 1: replace a file that exists, and what a stopped writer left */
  int32_t threads;      /* 0: every core */
  int32_t shards;       /* so many files, and a manifest at the path; 0: one file */
  int64_t samples;      /* how many will be written; needed for two shards or more */
  const char* metadata; /* a JSON object; NULL: {}, or what the file has */
  uint64_t seed;        /* for stochastic rounding */
  uint64_t origin;      /* identifies the inputs; TUCKFOLD_RESUME refuses another */
  int32_t no_sync;      /* 1: do not wait for the disk */
} tuckfold_write_options;

/* One call at a time is made of a writer, in the process that opened it. */
typedef struct tuckfold_writer tuckfold_writer;

/* `count` arrays; none when appending means those of the file. A file that exists, or that a
   stopped writer left, is refused without `force`, TUCKFOLD_APPEND or TUCKFOLD_RESUME. */
TUCKFOLD_C_API tuckfold_status tuckfold_writer_open(const char* path, const tuckfold_array* arrays,
                                                    size_t count,
                                                    const tuckfold_write_options* options,
                                                    tuckfold_writer** writer);
/* A batch: a tensor for each array, in order, whose first axis is the sample. */
TUCKFOLD_C_API tuckfold_status tuckfold_writer_write(tuckfold_writer* writer,
                                                     const tuckfold_tensor* batch, size_t count);
/* Writes the rest; then the file has its name. */
TUCKFOLD_C_API tuckfold_status tuckfold_writer_finish(tuckfold_writer* writer);
/* Until the next call with this writer: {"samples": 100, "arrays": [{"name": "image", "dtype": "u8",
   "shape": [3, 32, 32], "codec": "dct_quant(rate=4)", "packed_bytes": 65536, "measured": 100,
   "psnr_db": 41.2, "max_error": 9, "range": 255, "lost": 0, "changed": 0, "filled": 0, "too_few": 0,
   "past_bound": 0}]}. "samples" is the number of the next sample. The figures are of samples that
   were packed by now, as WrittenArray of tuckfold/container.h has them; null stands for a
   number that JSON does not have. */
TUCKFOLD_C_API const char* tuckfold_writer_json(tuckfold_writer* writer);
/* Ends a writer; NULL is allowed. Without tuckfold_writer_finish, a file that was appended to is as
   it was, and what was packed stays for TUCKFOLD_RESUME, unless keep is 0. */
TUCKFOLD_C_API void tuckfold_writer_close(tuckfold_writer* writer, int32_t keep);

/* Writes a manifest: files of its folder, with equal arrays, that are read as one in this order. */
TUCKFOLD_C_API tuckfold_status tuckfold_write_manifest(const char* path, const char* const* shards,
                                                       size_t count);

/* ---- which codec, and how far values are off --------------------------------------------------- */

enum { TUCKFOLD_PSNR = 0, TUCKFOLD_RATIO = 1, TUCKFOLD_MAX_ERROR = 2 };
/* What to try on a row-major part of an array to reach a target, as long as the thread makes no
   other such call: [[{"codec": "dct_quant(rate=1)", "max_bytes": 4096, "fixed": true}, …], …], each
   list from the fewest bytes to the smallest error. Without codecs that do not suit the part, and
   with for_the_rest 1 without exact ones that refuse some values. For TUCKFOLD_MAX_ERROR, only
   those that promise it. */
TUCKFOLD_C_API tuckfold_status tuckfold_ladders(const tuckfold_tensor* part, int32_t target,
                                                double value, int32_t for_the_rest,
                                                const char** json);
/* The exact codec with the fewest bytes in a file, found on a row-major part of an array whose
   first axis is the sample; as long as the thread makes no other such call. */
TUCKFOLD_C_API tuckfold_status tuckfold_choose_exact(const tuckfold_tensor* part, int32_t threads,
                                                     const char** codec);

/* Over the values that are finite in the original. */
typedef struct tuckfold_difference {
  double low, high;   /* of the original */
  double mean_square; /* of the errors */
  double max_error;   /* infinite where a value is lost */
  double psnr_db;     /* the peak is high - low; infinite where nothing differs, NaN where a value
                          is lost */
  int64_t finite;     /* such values of the original */
  int64_t lost;       /* of these, NaN or infinite in the result */
  int64_t changed;    /* values that are NaN or infinite in the original, and not the same after */
} tuckfold_difference;
/* Both row-major and of one shape; dtypes may differ. */
TUCKFOLD_C_API tuckfold_status tuckfold_compare(const tuckfold_tensor* original,
                                                const tuckfold_tensor* result,
                                                tuckfold_difference* difference);

/* ---- dct_chop as matrix products, see tuckfold/portable.h ------------------------------------ */

/* For each tile A of tile_rows x tile_cols: Y = lhs · A · rhs, and back A' = back_lhs · Y ·
   back_rhs. Y has kept_rows x kept_cols. */
typedef struct tuckfold_matmul_sizes {
  int64_t tiles, tile_rows, tile_cols, kept_rows, kept_cols;
} tuckfold_matmul_sizes;

/* Sizes for a plane of rows x cols, and the four row-major matrices that are not NULL. */
TUCKFOLD_C_API tuckfold_status tuckfold_matmul_form(const tuckfold_spec* spec, int64_t rows,
                                                    int64_t cols, tuckfold_matmul_sizes* sizes,
                                                    float* lhs, float* rhs, float* back_lhs,
                                                    float* back_rhs);

/* ---- how to store what training saves, see tuckfold/planner.h --------------------------------- */

/* A problem as JSON becomes a plan as JSON, as long as the thread makes no other such call:
   {"base": [bytes at each position], "budget": bytes, "items": [{"name": "conv1.input", "choices":
   [{"kind": "codec", "how": "block_quant(bits=4)", "spans": [[first, last, bytes], …],
     "seconds": 2e-4, "noise": 0.01}, …]}, …], "noise_weight": 1, "seconds_weight": 1}
   becomes {"fits": true, "choice": [0, …], "peak": bytes, "peak_position": 1, "noise": …,
   "seconds": …, "cost": …, "why": ""}. Kinds are keep, exact, recompute, codec and offload.
   Without "budget" the peak is made small, within the limits "noise" and "seconds". */
TUCKFOLD_C_API tuckfold_status tuckfold_plan_storage(const char* problem, const char** plan);

/* ---- which Tuckfold this is ------------------------------------------------------------------ */

TUCKFOLD_C_API const char* tuckfold_version(void);    /* "0.1.0" */
TUCKFOLD_C_API const char* tuckfold_cpu_target(void); /* the SIMD target in use, "avx3" … */
TUCKFOLD_C_API int32_t tuckfold_has_cuda(void);       /* 1 where this build has CUDA kernels */
TUCKFOLD_C_API int32_t tuckfold_cuda_devices(void);   /* how many devices they can run on */

#ifdef __cplusplus
}
#endif

#endif /* TUCKFOLD_C_H_ */
