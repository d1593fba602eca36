// Datasets in files: samples of several arrays, packed in chunks, read in any order.
//
//   FileWriter writer("train.tuck", {{.name = "image", .dtype = DType::F32, .shape = {3, 32, 32},
//                                     .codec = CodecSpec::parse("dct_chop(keep=4)")},
//                                    {.name = "label", .dtype = DType::I64}});
//   while (next_batch()) writer.write({images, labels});  // views, the sample axis first
//   writer.finish();                                      // train.tuck appears, whole
//
//   FileReader reader("train.tuck");
//   reader.read(reader.find("image"), 1000, 64, batch);   // 64 samples from the 1000th on
//
// docs/format.md specifies every byte. Functions here throw Error; they never print. A file's bytes
// depend only on its samples, schema and seed, not on threads, batch sizes or interruptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuckfold/codec.h"
#include "tuckfold/export.h"
#include "tuckfold/fill_value.h"
#include "tuckfold/tensor.h"
#include "tuckfold/unpack_images.h"

namespace tuckfold {

// ---- frames: one packed tensor that describes itself --------------------------------------------

struct FrameHeader {
  DType dtype = DType::F32;
  Shape shape;
  CodecSpec codec;
  std::size_t header_bytes = 0;  // the packed bytes follow
  std::size_t packed_bytes = 0;
};

// The bytes that write_frame needs for such a tensor.
TUCKFOLD_API std::size_t frame_bytes(const CodecSpec& spec, DType dtype, const Shape& shape);
// Writes a header and the packed tensor, which is on the CPU, and returns the bytes of both. Throws
// InvalidArgument if a tensor of more than 1 GiB packs to less than a 32768th of that.
TUCKFOLD_API std::size_t write_frame(const CodecSpec& spec, const ConstTensorView& in,
                                     std::span<std::byte> out, const RunOptions& options = {});
// Reads the header of a frame at the start of `bytes`; more bytes may follow. Throws CorruptData if
// the frame is incomplete, its header's checksum is wrong, or its codec does not pack such a tensor to
// so many bytes; Unsupported if the codec is not known. Does not check the packed bytes.
TUCKFOLD_API FrameHeader read_frame_header(std::span<const std::byte> bytes);
// Also checks the packed bytes, and fills `out`, which has the frame's dtype and shape.
TUCKFOLD_API void unpack_frame(std::span<const std::byte> bytes, const TensorView& out,
                               const RunOptions& options = {});

// ---- writing ------------------------------------------------------------------------------------

struct ArrayInfo {
  std::string name;
  DType dtype = DType::F32;
  Shape shape{};  // of one sample; scalars have none
  CodecSpec codec = CodecSpec::parse("raw");
  std::int64_t samples_per_chunk = 0;  // 0: what suits the codec
  // Values that stand for missing ones, such as the dtype has. A lossy codec packs others in their
  // places, and they come back exactly: the file has a mask of them.
  std::vector<FillValue> fill{};
  std::string mask_of{};  // of a mask, the name of its array; the writer makes these

  std::size_t sample_bytes() const {
    return static_cast<std::size_t>(shape.elems()) * size_bytes(dtype);
  }
  friend bool operator==(const ArrayInfo& a, const ArrayInfo& b) = default;
};

enum class WriteMode : unsigned char {
  Create,  // a new file; PATH.partial until it is complete, then it replaces the file at the path
  Resume,  // the same, continuing what a stopped writer left in PATH.partial
  Append,  // after the samples of a file, which stays valid until the new ones are complete
};

// Identifies the inputs of a file by numbers. PATH.partial keeps them, and Resume refuses others: a
// file must not mix samples of two versions of its inputs.
struct Origin {
  std::uint64_t samples = 0;  // of the inputs, in this file or others
  std::uint64_t first = 0;    // number of this file's first sample
  std::uint64_t values = 0;   // a digest of values, of all or some samples
  std::uint64_t files = 0;    // a digest of the inputs' sizes and modification times
  friend bool operator==(const Origin& a, const Origin& b) = default;
};

// What the writer looks at while it packs an array.
struct ArrayCheck {
  bool measure = false;  // unpack every chunk and compare it with what was given
  // The same, and chunks in which a value differs by more are stored as they are.
  std::optional<double> max_error{};
};

struct WriteOptions {
  WriteMode mode = WriteMode::Create;
  int threads = 0;                   // 0: every core
  std::string metadata{};            // a JSON object; empty: {}, or what the file has
  std::uint64_t seed = 0;            // for stochastic rounding; chunks derive their own from it
  bool sync = true;                  // flush to the disk: a finished file survives a loss of power
  Origin origin{};                   // Resume compares it, like arrays, metadata and seed
  std::vector<ArrayCheck> checks{};  // for each array, in order; empty: none is measured
};

// How values differ, as sums over some of them. Fill values are counted and otherwise left out.
struct TUCKFOLD_API Sums {
  double low = std::numeric_limits<double>::infinity(), high = -low;  // of the original
  // What 64-bit whole numbers have beyond the doubles nearest to them: the least is low + low_rest.
  double low_rest = 0, high_rest = 0;
  double squares = 0, max_error = 0;
  // Squares of errors beyond 2^500 and below 2^-500, times 2^-1200 and 2^1200, so that doubles hold
  // them.
  double large_squares = 0, small_squares = 0;
  std::int64_t finite = 0;   // values of the original that are
  std::int64_t lost = 0;     // of these, NaN or infinite in the result
  std::int64_t changed = 0;  // values of the original that are NaN, infinite or fill values, and
                             // something else in the result
  std::int64_t filled = 0;   // fill values of the original

  void add(const Sums& other);
  double range() const;
  double mean_square() const;
  double error_db() const;            // 10 log10 of it, where a double does not hold it, too
  double psnr_db(double peak) const;  // NaN where a value is lost, infinite where nothing differs
};

// What a writer found out about the samples of an array that it packed.
struct TUCKFOLD_API WrittenArray {
  // Of `measured` samples: all where a check asks for that. Without one, those of chunks with a
  // value that is NaN, infinite or beyond 2^100, which a lossy codec may not keep.
  Sums sums;
  std::int64_t measured = 0;
  std::int64_t too_few = 0;        // samples stored raw: they are too few for the codec
  std::int64_t past_bound = 0;     // samples stored raw: the codec exceeded max_error
  std::uint64_t packed_bytes = 0;  // of the chunks, masks included, without those before an append

  void add(const WrittenArray& other);
};

class TUCKFOLD_API FileWriter {
 public:
  // When appending, `arrays` may be empty: then they are those of the file.
  FileWriter(const std::string& path, std::vector<ArrayInfo> arrays,
             const WriteOptions& options = {});
  // Without finish(), the samples written stay in PATH.partial for Resume; a file that was appended
  // to is unchanged.
  ~FileWriter();
  FileWriter(FileWriter&&) noexcept;
  FileWriter& operator=(FileWriter&&) noexcept;

  // The number of samples in the file so far, which is the number of the next one: 0 for a new
  // file.
  std::int64_t samples() const;

  // A batch: for each array, in order, a tensor of its dtype whose first axis is the sample. Packs
  // the chunks that become full. After an Error nothing more can be written.
  void write(std::span<const ConstTensorView> batch);
  void write(std::initializer_list<ConstTensorView> batch) { write(std::span(batch)); }

  // The same for `samples` samples that are fetched while chunks are packed, on the threads that
  // pack them. fetch(array, first, samples, room) writes the samples from `first` on to `room`,
  // row-major, and returns `room`; or it returns the address of such samples, aligned as their
  // dtype, which must stay valid until write() returns.
  using Fetch = std::function<const std::byte*(std::size_t array, std::int64_t first,
                                               std::int64_t samples, std::byte* room)>;
  void write(std::int64_t samples, const Fetch& fetch);

  // Of samples that were packed by now: all, once the file is finished. Those that a stopped writer
  // left are not among them, but for packed_bytes.
  const WrittenArray& written(std::size_t array) const;

  // Replaces the metadata, until finish().
  void set_metadata(const std::string& json);
  // Writes the remaining samples and the index; then the file gets its name.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// ---- reading ------------------------------------------------------------------------------------

// A run of samples that were packed together, or the part that a repair could save.
struct ChunkInfo {
  std::int64_t first = 0, samples = 0;
  std::int64_t skip = 0;  // rows of the frame before them
  std::uint64_t frame_bytes = 0;
  std::uint32_t file = 0;    // the shard that has it, by its place in the manifest
  std::uint64_t offset = 0;  // of its record there
};

// The mapped frame of a chunk; valid during the object's lifetime, even after its reader's.
struct ChunkBytes {
  std::span<const std::byte> frame;
  std::shared_ptr<const void> owner;
};

// Bytes of a file after its last valid state: an append that was stopped, or one that was finished
// and later damaged or cut off. Samples may be missing.
struct TrailingData {
  std::string path;
  std::uint64_t bytes = 0;
  bool trailer_broken = false;  // a trailer is among them: the append was finished
  bool not_listed = false;  // a whole state is: a shard was appended to by itself, not its manifest
};

// How gather_images() turns samples into images for a network.
struct ImageOptions {
  bool channels_last = false;  // samples are H x W x C, else C x H x W; with two axes H x W
  // A pixel p of channel c becomes p * scale[c] + add[c]; empty: p itself.
  std::vector<float> scale{}, add{};
};

// Packed samples, brought together for a device that unpacks them. The samples of a part are what
// unpack() takes for a tensor of so many of them; mostly there is one part, but chunks that the codec
// did not suit are raw, and shards may have codecs of their own.
struct PackedBatch {
  static constexpr std::size_t kAlign = 256;  // of offsets
  struct Part {
    CodecSpec codec;
    std::int64_t samples = 0;
    std::size_t offset = 0, bytes = 0;  // in the room
  };
  std::vector<Part> parts;
  std::vector<std::int32_t> places;  // of the samples of all parts, in order, among those asked for
  std::size_t bytes = 0;             // of the room that they take
};

struct ReadOptions {
  bool strict = false;  // CorruptData where samples may be missing, as trailing_data() says
};

// A file, mapped into memory; any number of threads may read at once. The file must not shrink
// while it is open: the system then raises SIGBUS at the access, which ends a program that does not
// handle it. The command line says which file it was and exits with 5.
class TUCKFOLD_API FileReader {
 public:
  // A .tuck file, or a manifest of several (write_manifest), which are read as one. Only some of
  // them are mapped at a time, so that there may be any number.
  explicit FileReader(const std::string& path, const ReadOptions& options = {});
  ~FileReader();
  FileReader(FileReader&&) noexcept;
  FileReader& operator=(FileReader&&) noexcept;

  std::span<const ArrayInfo> arrays() const;
  // The number of the array of that name. Throws InvalidArgument with the names of the file.
  std::size_t find(std::string_view name) const;
  std::int64_t samples() const;
  const std::string& metadata() const;  // a JSON object
  std::uint64_t file_bytes() const;
  // Of the index, or of those of all shards in their order. It depends on every sample.
  std::uint64_t checksum() const;
  // The files, this one or its shards, whose last bytes are not read. If there are any, samples may
  // be missing.
  std::span<const TrailingData> trailing_data() const;
  std::uint64_t trailing_bytes() const;  // of all of them

  // The number of the array's mask, for chunks() and what follows it; none where it has none.
  // Marks are u8: 0, or k where the value is the k-th of ArrayInfo::fill.
  std::optional<std::size_t> mask(std::size_t array) const;

  // Samples first .. first + count to `out`, of the array's dtype and shape with a leading sample
  // axis, fill values restored. Each chunk's checksum is checked once per reader.
  void read(std::size_t array, std::int64_t first, std::int64_t count, const TensorView& out,
            int threads = 0) const;
  // Row i of `out` becomes sample samples[i], as a training loop asks for them; they may repeat. A
  // chunk whose samples cannot be unpacked alone is unpacked once, and kept if the whole array has
  // at most 16 MiB. Throws as read() does; of several errors, that of the lowest sample.
  void gather(std::size_t array, std::span<const std::int64_t> samples, const TensorView& out,
              int threads = 0) const;
  // The same of images, with one pass over their pixels: a window of each sample, or all of them the
  // upper left one if `windows` is empty, scaled, to f32, f16 or bf16. `out` is samples x C x H x W,
  // of any strides.
  void gather_images(std::size_t array, std::span<const std::int64_t> samples,
                     std::span<const Window> windows, const ImageOptions& options,
                     const TensorView& out, int threads = 0) const;
  // Whether each sample of an array has packed bytes of its own, as gather_packed() needs.
  bool is_packed_alone(std::size_t array) const;
  // Copies the packed bytes of samples to `room`, for unpack_images() or Plan::unpack on a device.
  // If the room is smaller than PackedBatch::bytes, nothing is copied. Throws as gather() does;
  // Unsupported if samples are not packed alone.
  PackedBatch gather_packed(std::size_t array, std::span<const std::int64_t> samples,
                            std::span<std::byte> room, int threads = 0) const;
  // One sample, to a tensor of the array's shape, on this thread alone.
  void read_one(std::size_t array, std::int64_t sample, const TensorView& out) const;

  // The chunks of an array in order; the codec of a chunk, which may differ between shards; and its
  // frame, checked. If the array has a mask, the frame has other values in place of fill values.
  std::span<const ChunkInfo> chunks(std::size_t array) const;
  const CodecSpec& chunk_codec(std::size_t array, std::size_t chunk) const;
  ChunkBytes chunk_bytes(std::size_t array, std::size_t chunk) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

// ---- looking after files ------------------------------------------------------------------------

struct SampleRange {
  std::int64_t first = 0, samples = 0;
  friend bool operator==(const SampleRange& a, const SampleRange& b) = default;
};

struct BrokenChunk {
  std::string array;
  SampleRange range;
  std::string reason;
};

struct VerifyReport {
  std::int64_t samples = 0, chunks = 0;
  std::vector<BrokenChunk> broken;
  std::vector<TrailingData> trailing_data;  // as FileReader has it
  bool schema_broken = false;               // at the start; the index has another, which is read
};

// Called with the number of bytes read or written since the last call, on one thread at a time. An
// exception that it throws ends the work.
using Progress = std::function<void(std::uint64_t bytes)>;

// Checks every checksum. Throws if the file cannot be opened at all, as FileReader does.
TUCKFOLD_API VerifyReport verify(const std::string& path, int threads = 0,
                                 const Progress& progress = {});

struct RepairReport {
  std::int64_t samples = 0;          // that the repaired file has
  std::vector<SampleRange> dropped;  // in the numbers of the broken one
  bool by_index = true;              // false: an index was lost, and records were searched for
  // For a manifest: shards that differ from its list but were used anyway; and the reasons why
  // other shards could not be read.
  std::vector<std::string> not_listed{}, unreadable{};
  // For a manifest: shards with more samples than it lists, which are left out.
  std::vector<std::string> grown{};
};

// Copies the valid chunks to a new file. All arrays lose the samples of a broken chunk, so that
// they have the same samples; nothing is packed again. Chunks are first checked, then copied. Of a
// manifest every shard is repaired, and the result is a manifest, too.
TUCKFOLD_API RepairReport repair(const std::string& from, const std::string& to,
                                 const Progress& progress = {});

// "train-00003-of-00042.tuck" for ("train", 3, 42).
TUCKFOLD_API std::string shard_name(std::string_view name, int shard, int shards);
// Writes a JSON manifest beside its shards, files of the same folder with equal arrays, which are
// read in the given order. Its metadata is that of the first. It lists the size and checksum of
// each shard: a shard that is replaced later is CorruptData, and samples appended later are not
// read.
TUCKFOLD_API void write_manifest(const std::string& path, std::span<const std::string> shards);

}  // namespace tuckfold
