/* An HDF5 filter: chunks become frames, which describe themselves, with checksums.
 *
 * It links the C API and not libhdf5, so that one file serves every HDF5: h5py's wheel has one of its own. What it
 * needs of HDF5's headers is below; it has been the same since 1.8.11, and hid_t since 1.10.
 *
 * The filter's parameters, unsigned numbers, are: 1 (their version), a dtype of the C API, the rank, each side of a
 * chunk as its low and its high 32 bits, the bytes of the spec's text, and these, four to a number, the first lowest.
 * Only packing reads them. tuckfold.hdf5() of the Python package makes them.
 */
#include <stdlib.h>
#include <string.h>
#include <tuckfold/c.h>

#ifndef TUCKFOLD_HDF5_FILTER
#define TUCKFOLD_HDF5_FILTER 461 /* in HDF5's range for testing, 256 to 511 */
#endif

enum { kVersion = 1, kReverse = 0x0100, kMostSpecBytes = 4096 };
enum { kMostRatio = 32768 }; /* as in files: a few hostile bytes must not cost much memory */

typedef size_t (*Filter)(unsigned flags, size_t count, const unsigned* values, size_t bytes,
                         size_t* room, void** buffer);
typedef struct {
  int version; /* of this struct: 1 */
  int id;
  unsigned encoder_present, decoder_present;
  const char* name;
  int (*can_apply)(int64_t, int64_t, int64_t);
  int (*set_local)(int64_t, int64_t, int64_t);
  Filter filter;
} FilterClass;

/* Bytes of a tensor; 0 where there is none of that dtype and shape. */
static size_t tensor_bytes(int32_t dtype, int32_t rank, const int64_t* shape) {
  tuckfold_plan* plan = NULL;
  if (tuckfold_plan_get("raw", dtype, rank, shape, &plan) != TUCKFOLD_OK) return 0;
  const size_t bytes = tuckfold_plan_layout(plan)->max_bytes;
  tuckfold_plan_release(plan);
  return bytes;
}

/* Puts new memory in the place of a buffer of HDF5's. */
static size_t replace(void** buffer, size_t* room, void* made, size_t bytes) {
  free(*buffer);
  *buffer = made;
  *room = bytes;
  return bytes;
}

typedef struct {
  int32_t dtype, rank;
  int64_t shape[TUCKFOLD_MAX_RANK];
  char spec[kMostSpecBytes + 1];
} Parameters;

static int parse(size_t count, const unsigned* values, Parameters* to) {
  if (count < 4 || values[0] != kVersion || values[1] > INT32_MAX) return 0;
  if (values[2] < 1 || values[2] > TUCKFOLD_MAX_RANK || count < 4 + 2 * (size_t)values[2]) return 0;
  to->dtype = (int32_t)values[1];
  to->rank = (int32_t)values[2];
  const unsigned* at = values + 3;
  for (int32_t i = 0; i < to->rank; ++i, at += 2) {
    to->shape[i] = (int64_t)(at[0] | (uint64_t)at[1] << 32);
  }
  const size_t bytes = *at++;
  if (bytes > kMostSpecBytes || (size_t)(values + count - at) < (bytes + 3) / 4) return 0;
  for (size_t i = 0; i < bytes; ++i) to->spec[i] = (char)(at[i / 4] >> (8 * (i % 4)));
  to->spec[bytes] = '\0';
  return 1;
}

static size_t pack_chunk(size_t count, const unsigned* values, size_t bytes, size_t* room,
                         void** buffer) {
  Parameters with;
  tuckfold_plan* plan = NULL;
  if (!parse(count, values, &with) || tensor_bytes(with.dtype, with.rank, with.shape) != bytes ||
      tuckfold_plan_get(with.spec, with.dtype, with.rank, with.shape, &plan) != TUCKFOLD_OK) {
    return 0;
  }
  const tuckfold_tensor in = {
      .data = *buffer, .dtype = with.dtype, .rank = with.rank, .shape = with.shape};
  const size_t most = tuckfold_plan_layout(plan)->max_bytes;
  size_t packed_bytes = 0, done = 0;
  void* packed = malloc(most > 0 ? most : 1);
  if (packed != NULL &&
      tuckfold_pack(plan, &in, packed, most, NULL, &packed_bytes) == TUCKFOLD_OK) {
    const size_t frame_bytes = tuckfold_frame_bytes(plan, packed_bytes);
    void* frame = malloc(frame_bytes);
    if (frame != NULL &&
        tuckfold_write_frame(plan, packed, packed_bytes, frame, frame_bytes) == TUCKFOLD_OK) {
      done = replace(buffer, room, frame, frame_bytes);
    } else {
      free(frame);
    }
  }
  free(packed);
  tuckfold_plan_release(plan);
  return done;
}

static size_t unpack_chunk(size_t bytes, size_t* room, void** buffer) {
  tuckfold_frame frame;
  tuckfold_plan* plan = NULL;
  char spec[kMostSpecBytes + 1];
  if (tuckfold_read_frame(*buffer, bytes, &frame) != TUCKFOLD_OK || frame.frame_bytes != bytes ||
      frame.codec_bytes > kMostSpecBytes) {
    return 0;
  }
  memcpy(spec, frame.codec, frame.codec_bytes);
  spec[frame.codec_bytes] = '\0';
  const size_t whole = tensor_bytes(frame.dtype, frame.rank, frame.shape);
  if (whole == 0 || whole / kMostRatio > bytes ||
      tuckfold_plan_get(spec, frame.dtype, frame.rank, frame.shape, &plan) != TUCKFOLD_OK) {
    return 0;
  }
  size_t done = 0;
  void* values = malloc(whole);
  const tuckfold_tensor out = {
      .data = values, .dtype = frame.dtype, .rank = frame.rank, .shape = frame.shape};
  if (values != NULL &&
      tuckfold_unpack(plan, frame.packed, frame.packed_bytes, &out, NULL) == TUCKFOLD_OK) {
    done = replace(buffer, room, values, whole);
  } else {
    free(values);
  }
  tuckfold_plan_release(plan);
  return done;
}

static size_t filter(unsigned flags, size_t count, const unsigned* values, size_t bytes,
                     size_t* room, void** buffer) {
  return flags & kReverse ? unpack_chunk(bytes, room, buffer)
                          : pack_chunk(count, values, bytes, room, buffer);
}

static const FilterClass kFilter = {.version = 1,
                                    .id = TUCKFOLD_HDF5_FILTER,
                                    .encoder_present = 1,
                                    .decoder_present = 1,
                                    .name = "tuckfold",
                                    .can_apply = NULL,
                                    .set_local = NULL,
                                    .filter = filter};

/* What HDF5 asks a plug-in. */
TUCKFOLD_C_API int H5PLget_plugin_type(void);
TUCKFOLD_C_API const void* H5PLget_plugin_info(void);
int H5PLget_plugin_type(void) { return 0; /* a filter */ }
const void* H5PLget_plugin_info(void) { return &kFilter; }
