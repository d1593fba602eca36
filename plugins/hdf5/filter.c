/* An HDF5 filter: chunks become frames, which describe themselves, with checksums.
 *
 * It links the C API and not libhdf5, so that one file serves every HDF5: h5py's wheel has one of its own. What it
 * needs of HDF5's headers is below; it has been the same since 1.8.11, and hid_t since 1.10.
 *
 * The filter's parameters, unsigned numbers, are: 1 (their version), a dtype of the C API, the rank, each side of a
 * chunk as its low and its high 32 bits, the bytes of the spec's text, and these, four to a number, the first lowest.
 * tuckfold.hdf5() of the Python package makes them. The dtype may be 2^32 - 1, and the rank 0: those of the dataset,
 * which set_local fills in when a dataset is created. There it also refuses what the dataset does not have: HDF5 gives
 * the filter bytes alone.
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <tuckfold/c.h>

#ifndef TUCKFOLD_HDF5_FILTER
#define TUCKFOLD_HDF5_FILTER 461 /* in HDF5's range for testing, 256 to 511 */
#endif

enum { kVersion = 1, kReverse = 0x0100, kMostSpecBytes = 4096 };
enum { kMostValues = 4 + 2 * TUCKFOLD_MAX_RANK + kMostSpecBytes / 4 };
enum { kMostRead = 256 }; /* parameters that HDF5 gives in one call, and there is no second */
static const unsigned kOfDataset = 0xffffffffu; /* a dtype */

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
  if (count < 4 || values[0] != kVersion) return 0;
  if (values[1] > INT32_MAX && values[1] != kOfDataset) return 0;
  if (values[2] > TUCKFOLD_MAX_RANK || count < 4 + 2 * (size_t)values[2]) return 0;
  to->dtype = values[1] == kOfDataset ? -1 : (int32_t)values[1];
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

/* The reverse; the number of values. */
static size_t print(const Parameters* from, unsigned* values) {
  unsigned* at = values;
  *at++ = kVersion;
  *at++ = (unsigned)from->dtype;
  *at++ = (unsigned)from->rank;
  for (int32_t i = 0; i < from->rank; ++i) {
    *at++ = (unsigned)from->shape[i];
    *at++ = (unsigned)((uint64_t)from->shape[i] >> 32);
  }
  const size_t bytes = strlen(from->spec);
  *at++ = (unsigned)bytes;
  memset(at, 0, (bytes + 3) / 4 * sizeof *at);
  for (size_t i = 0; i < bytes; ++i) {
    at[i / 4] |= (unsigned)(unsigned char)from->spec[i] << (8 * (i % 4));
  }
  return (size_t)(at - values) + (bytes + 3) / 4;
}

/* ---- when a dataset is created ---------------------------------------------------------------- */

/* Functions of the HDF5 that calls, with numbers of its headers. */
typedef struct {
  int (*type_class)(int64_t);
  size_t (*type_size)(int64_t);
  int (*type_order)(int64_t);
  int (*type_sign)(int64_t);
  int (*type_fields)(int64_t, size_t*, size_t*, size_t*, size_t*, size_t*);
  int64_t (*type_super)(int64_t);
  int (*type_close)(int64_t);
  int (*chunk)(int64_t, int, uint64_t*);
  int (*filter)(int64_t, unsigned, unsigned*, size_t*, unsigned*, size_t, char*, unsigned*);
  int (*modify)(int64_t, int, unsigned, size_t, const unsigned*);
} Hdf5;
enum { kInteger = 0, kFloat = 1, kEnum = 8, kLittleEndian = 0, kSigned = 1 };

/* A plug-in does not see the symbols of a library that a Python module has loaded for itself, so they are looked up
 * in the library that the call came from. */
static int find_hdf5(const void* caller, Hdf5* to) {
  static const char* const kNames[] = {
      "H5Tget_class", "H5Tget_size", "H5Tget_order", "H5Tget_sign",    "H5Tget_fields",
      "H5Tget_super", "H5Tclose",    "H5Pget_chunk", "H5Pget_filter2", "H5Pmodify_filter"};
  void* found[sizeof kNames / sizeof *kNames];
  Dl_info from;
  void* library = NULL;
  if (dladdr(caller, &from) != 0) library = dlopen(from.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) library = dlopen(NULL, RTLD_LAZY); /* HDF5 is a part of the program */
  if (library == NULL) return 0;
  int all = 1;
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i) {
    found[i] = dlsym(library, kNames[i]);
    all = all && found[i] != NULL;
  }
  dlclose(library); /* it stays loaded: it is about to be returned to */
  if (all) memcpy(to, found, sizeof found);
  return all;
}

/* The dtype of a dataset's elements; -1 where there is none. */
static int32_t dtype_of(const Hdf5* hdf5, int64_t type) {
  const size_t bytes = hdf5->type_size(type);
  const int kind = hdf5->type_class(type);
  if (kind == kEnum) {
    const int64_t base = hdf5->type_super(type);
    const int32_t dtype = base < 0 ? -1 : dtype_of(hdf5, base);
    if (base >= 0) hdf5->type_close(base);
    return dtype;
  }
  if ((kind != kInteger && kind != kFloat) ||
      (bytes > 1 && hdf5->type_order(type) != kLittleEndian)) {
    return -1;
  }
  if (kind == kInteger) {
    const int has_sign = hdf5->type_sign(type) == kSigned;
    switch (bytes) {
      case 1: return has_sign ? TUCKFOLD_I8 : TUCKFOLD_U8;
      case 2: return has_sign ? TUCKFOLD_I16 : TUCKFOLD_U16;
      case 4: return has_sign ? TUCKFOLD_I32 : TUCKFOLD_U32;
      case 8: return has_sign ? TUCKFOLD_I64 : TUCKFOLD_U64;
      default: return -1;
    }
  }
  size_t sign_at, exponent_at, exponent, mantissa_at, mantissa;
  if (hdf5->type_fields(type, &sign_at, &exponent_at, &exponent, &mantissa_at, &mantissa) < 0) {
    return -1;
  }
  if (bytes == 2 && exponent == 5 && mantissa == 10) return TUCKFOLD_F16;
  if (bytes == 2 && exponent == 8 && mantissa == 7) return TUCKFOLD_BF16;
  if (bytes == 4 && exponent == 8 && mantissa == 23) return TUCKFOLD_F32;
  return bytes == 8 && exponent == 11 && mantissa == 52 ? TUCKFOLD_F64 : -1;
}

/* Whether a dtype that was asked for may be that of such elements: HDF5 has bools as an enumeration, and bits of bf16
 * may be in whole numbers. */
static int suits(const Hdf5* hdf5, int64_t type, int32_t asked, int32_t found) {
  if (asked == found) return 1;
  const int kind = hdf5->type_class(type);
  if (asked == TUCKFOLD_BOOL)
    return kind == kEnum && (found == TUCKFOLD_I8 || found == TUCKFOLD_U8);
  return asked == TUCKFOLD_BF16 && (found == TUCKFOLD_U16 || found == TUCKFOLD_I16);
}

/* Fills in dtype and chunks; a negative number, with which HDF5 makes no dataset, where they are not those that the
 * parameters have, the codec does not take them, or another filter comes first and gives other bytes. */
static int set_local(int64_t properties, int64_t type, int64_t space) {
  (void)space;
  Hdf5 hdf5;
  if (!find_hdf5(__builtin_return_address(0), &hdf5)) return -1;
  unsigned values[kMostValues], flags = 0;
  size_t count = kMostRead;
  Parameters with;
  if (hdf5.filter(properties, 0, &flags, &count, values, 0, NULL, NULL) != TUCKFOLD_HDF5_FILTER ||
      count > kMostRead || !parse(count, values, &with)) {
    return -1;
  }
  const int32_t dtype = dtype_of(&hdf5, type);
  if (with.dtype < 0) with.dtype = dtype;
  if (dtype < 0 || !suits(&hdf5, type, with.dtype, dtype)) return -1;
  uint64_t sides[TUCKFOLD_MAX_RANK];
  const int rank = hdf5.chunk(properties, TUCKFOLD_MAX_RANK, sides);
  if (rank < 1 || rank > TUCKFOLD_MAX_RANK || (with.rank > 0 && with.rank != rank)) return -1;
  for (int32_t i = 0; i < rank; ++i) {
    if (with.rank > 0 && (uint64_t)with.shape[i] != sides[i]) return -1;
  }
  with.rank = rank;
  for (int32_t i = 0; i < rank; ++i) with.shape[i] = (int64_t)sides[i];
  tuckfold_plan* plan = NULL;
  if (tuckfold_plan_get(with.spec, with.dtype, with.rank, with.shape, &plan) != TUCKFOLD_OK)
    return -1;
  tuckfold_plan_release(plan);
  return hdf5.modify(properties, TUCKFOLD_HDF5_FILTER, flags, print(&with, values), values);
}

/* ---- chunks ----------------------------------------------------------------------------------- */

static size_t pack_chunk(size_t count, const unsigned* values, size_t bytes, size_t* room,
                         void** buffer) {
  Parameters with;
  tuckfold_plan* plan = NULL;
  if (!parse(count, values, &with) || with.rank < 1 || with.dtype < 0 ||
      tensor_bytes(with.dtype, with.rank, with.shape) != bytes ||
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

/* HDF5 trusts a filter to give back a whole chunk, so a frame of another dtype or shape is refused. */
static size_t unpack_chunk(size_t count, const unsigned* parameters, size_t bytes, size_t* room,
                           void** buffer) {
  Parameters with;
  tuckfold_frame frame;
  tuckfold_plan* plan = NULL;
  char spec[kMostSpecBytes + 1];
  if (!parse(count, parameters, &with) ||
      tuckfold_read_frame(*buffer, bytes, &frame) != TUCKFOLD_OK || frame.frame_bytes != bytes ||
      frame.codec_bytes > kMostSpecBytes || frame.dtype != with.dtype || frame.rank != with.rank ||
      memcmp(frame.shape, with.shape, (size_t)with.rank * sizeof *with.shape) != 0) {
    return 0;
  }
  memcpy(spec, frame.codec, frame.codec_bytes);
  spec[frame.codec_bytes] = '\0';
  const size_t whole = tensor_bytes(frame.dtype, frame.rank, frame.shape);
  if (whole == 0 ||
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
  return flags & kReverse ? unpack_chunk(count, values, bytes, room, buffer)
                          : pack_chunk(count, values, bytes, room, buffer);
}

static const FilterClass kFilter = {.version = 1,
                                    .id = TUCKFOLD_HDF5_FILTER,
                                    .encoder_present = 1,
                                    .decoder_present = 1,
                                    .name = "tuckfold",
                                    .can_apply = NULL,
                                    .set_local = set_local,
                                    .filter = filter};

/* What HDF5 asks a plug-in. */
TUCKFOLD_C_API int H5PLget_plugin_type(void);
TUCKFOLD_C_API const void* H5PLget_plugin_info(void);
int H5PLget_plugin_type(void) { return 0; /* a filter */ }
const void* H5PLget_plugin_info(void) { return &kFilter; }
