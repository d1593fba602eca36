// The decoder of dct_quant in plain operators, without shifts: bits of bytes are floors of halves,
// fields are products with powers of two, and positions of codes are sums of widths. All numbers
// are integers small enough to be exact in f32. Names and tables are those of dct_quant_block.h,
// which defines the bits.
#include <algorithm>
#include <cmath>
#include <vector>

#include "codec/blocks/block_rows.h"
#include "codec/dct_quant/dct_quant.h"
#include "codec/dct_quant/dct_quant_block.h"
#include "portable/codec_graph.h"

namespace tuckfold::portable {
namespace {

using dct_quant::Form;

// Writes one decoder; N is the number of blocks, K that of coded tiles.
class Decoder {
 public:
  Decoder(Graph& graph, const Form& form, Id bytes)
      : graph_(graph), form_(form), n_(graph[bytes].shape[0]), bits_(bits_of_bytes(bytes)) {
    widths();
    places();
  }

  // [N, 64] coefficients.
  Id coefficients() {
    const Id step = this->step();
    const Id codes = this->codes();
    graph_.note("A code v of w bits means v + 1/2 steps, v in two's complement.");
    const Id negative = graph_.binary("half", Op::Sub, scaled(power_, 0.5f), graph_.scalar(0.5f));
    const Id wrap = graph_.where_greater("wrap", codes, expand(negative), expand(power_), zero());
    const Id twice = scaled(graph_.binary("signed_codes", Op::Sub, codes, wrap), 2);
    const Id halves = graph_.binary("halves", Op::Add, twice, graph_.scalar(1));
    const Id finer = graph_.binary("finer", Op::Sub, graph_.scalar(1), scaled(halved_, 0.5f));
    const Id steps = graph_.binary("steps", Op::Mul, step, finer);  // [N, K]
    const Id present = graph_.where_greater("present", total_, zero(), steps, zero());
    const Id values = graph_.binary("values", Op::Mul, halves, expand(scaled(present, 0.5f)));
    return placed(values, first(codes, steps), step);
  }

 private:
  Id zero() { return graph_.scalar(0); }
  Id scaled(Id x, float by) { return graph_.binary("scaled", Op::Mul, x, graph_.scalar(by)); }
  // [N, K] for the four codes of a tile.
  Id expand(Id tiles) { return graph_.reshape("of_tiles", tiles, {n_, form_.tiles, 1}); }

  // Rows of 0 and 1, lowest bit first; zeros after them, for places past the end.
  Id bits_of_bytes(Id bytes) {
    graph_.note("Bits of the bytes: the floor of b / 2^i, less twice that of b / 2^(i+1).");
    std::vector<float> low, high;
    for (int i = 0; i < 8; ++i) {
      low.push_back(std::ldexp(1.0f, -i));
      high.push_back(std::ldexp(1.0f, -i - 1));
    }
    const Id column = graph_.reshape("bytes_column", bytes, {n_, form_.bytes, 1});
    const auto floors = [&](const char* name, std::vector<float> powers) {
      const Id all =
          graph_.binary(name, Op::Mul, column, graph_.floats(name, {8}, std::move(powers)));
      return graph_.unary("floors", Op::Floor, all);
    };
    const Id upper = floors("shifted", std::move(low));
    const Id lower = scaled(floors("shifted_more", std::move(high)), 2);
    const Id bits = graph_.binary("bits", Op::Sub, upper, lower);
    return graph_.reshape("bit_row", bits, {n_, 8 * form_.bytes});
  }

  // Sums of header bits [from, from + count) times the columns of a matrix.
  Id fields(std::string_view name, int cols, int end, const std::vector<float>& weights) {
    const Id head = graph_.slice("head", bits_, -1, 0, end);
    return graph_.matmul(name, head,
                         graph_.floats(std::string(name) + "_bits", {end, cols}, weights));
  }

  void widths() {
    const int tiles = form_.tiles, end = 14 + 2 * (tiles - 1);
    graph_.note("Widths of the tiles: each is a difference to the one before.");
    std::vector<float> weights(static_cast<std::size_t>(end * tiles)), start;
    for (int k = 0; k < tiles; ++k) {
      for (int bit = 10; bit < end; ++bit) {
        const int field = bit < 14 ? 0 : 1 + (bit - 14) / 2;
        const int power = bit < 14 ? bit - 10 : (bit - 14) % 2;
        if (field <= k)
          weights[static_cast<std::size_t>(bit * tiles + k)] = static_cast<float>(1 << power);
      }
      start.push_back(static_cast<float>(form_.bias - 2 * k));
    }
    const Id sums = fields("width_sums", tiles, end, weights);
    given_ = graph_.binary("given", Op::Add, sums, graph_.floats("width_start", {tiles}, start));
    left_ = graph_.binary("left", Op::Sub, graph_.scalar(static_cast<float>(form_.nibbles)),
                          graph_.unary("used", Op::Sum, given_));
    std::vector<float> order;
    for (int k = 0; k < tiles; ++k) order.push_back(static_cast<float>(k));
    const Id coded = graph_.where_greater("coded", given_, zero(), graph_.scalar(1), zero());
    halved_ = graph_.where_greater("halved", left_, graph_.floats("order", {tiles}, order), coded,
                                   zero());
    total_ = graph_.binary("total", Op::Add, given_, halved_);
    even_ = scaled(graph_.unary("pairs", Op::Floor, scaled(total_, 0.5f)), 2);
    odd_ = graph_.binary("odd", Op::Sub, total_, even_);
    // 2^w = 1 + 1 + 2 + 4 … as long as there are bits.
    power_ = graph_.binary(
        "power", Op::Add,
        graph_.reshape("power_sum", below_sum(total_, form_.max_width + 1), {n_, tiles}),
        graph_.scalar(1));
  }

  // Sum over i < width of 2^i, [N, K, 1].
  Id below_sum(Id width, int most) {
    const Id powers = graph_.floats("powers", {most}, powers_of(most));
    const Id terms = graph_.where_greater("terms", expand(width), counting(most), powers, zero());
    return graph_.unary("sum_of_terms", Op::Sum, terms);
  }
  static std::vector<float> powers_of(int count) {
    std::vector<float> powers;
    for (int i = 0; i < count; ++i) powers.push_back(std::ldexp(1.0f, i));
    return powers;
  }
  Id counting(int count) {
    std::vector<float> numbers;
    for (int i = 0; i < count; ++i) numbers.push_back(static_cast<float>(i));
    return graph_.floats("counting", {count}, std::move(numbers));
  }

  // Bits that the tiles before one take, four for each unit of `widths`, in an order of tiles.
  Id before(const char* name, Id widths, const std::vector<int>& rank, float offset) {
    const int tiles = form_.tiles;
    std::vector<float> weights;
    for (int j = 0; j < tiles; ++j) {
      for (int k = 0; k < tiles; ++k)
        weights.push_back(
            rank[static_cast<std::size_t>(j)] < rank[static_cast<std::size_t>(k)] ? 4.0f : 0.0f);
    }
    const Id sums =
        graph_.matmul("bits_before", widths,
                      graph_.floats(std::string(name) + "_order", {tiles, tiles}, weights));
    return graph_.binary(name, Op::Add, sums, graph_.scalar(offset));
  }

  void places() {
    graph_.note("Where the codes of each tile begin, and the lowest bits of odd widths.");
    low_dc_ = form_.header_bits() % 8;
    const int area = form_.header_bits() - low_dc_;
    std::vector<int> rank(16), tail(16);
    for (int k = 0; k < 16; ++k) {
      rank[static_cast<std::size_t>(k)] = k;
      tail[dct_quant::kTileAt[static_cast<std::size_t>(k)]] = k;
    }
    begin_ = before("begin", even_, rank, static_cast<float>(area));
    const Id used = scaled(graph_.unary("even_sum", Op::Sum, even_), 4);
    tail_ = graph_.binary("tail", Op::Add, used, graph_.scalar(static_cast<float>(area)));
    const Id odd_bits = before("odd_bits", odd_, tail, static_cast<float>(low_dc_));
    low_ = graph_.binary("low_begin", Op::Add, tail_, odd_bits);
  }

  // The bits at [N, ..] positions, as [N, cols]; positions past the end are clamped.
  Id bits_at(const char* name, Id places, std::int64_t cols) {
    const Id flat = graph_.reshape("flat_places", places, {n_, cols});
    const Id held = graph_.clamp("held", flat, 0, static_cast<float>(8 * form_.bytes - 1));
    return graph_.pick(name, bits_, graph_.cast("places", held, DType::I64));
  }

  // [N, K, 4] unsigned codes.
  Id codes() {
    const int tiles = form_.tiles, most = (form_.max_width + 1) / 2 * 2;
    graph_.note(
        "Codes: the bits of the byte area times powers of two, and a lowest bit of the tail.");
    const Id four = graph_.floats("four", {4}, {0, 1, 2, 3});
    const Id steps = graph_.binary("code_steps", Op::Mul, expand(even_), four);
    const Id begins = graph_.binary("code_begins", Op::Add, expand(begin_), steps);
    const Id column = graph_.reshape("begin_column", begins, {n_, tiles, 4, 1});
    const Id places = graph_.binary("bit_places", Op::Add, column, counting(most));
    const Id bits =
        graph_.reshape("code_bits", bits_at("picked", places, std::int64_t{tiles} * 4 * most),
                       {n_, tiles, 4, most});
    const Id width = graph_.reshape("code_width", even_, {n_, tiles, 1, 1});
    const Id kept = graph_.where_greater("kept_bits", width, counting(most), bits, zero());
    const Id upper = graph_.reshape(
        "upper",
        graph_.unary("upper_sum", Op::Sum,
                     graph_.binary("weighted", Op::Mul, kept,
                                   graph_.floats("code_powers", {most}, powers_of(most)))),
        {n_, tiles, 4});
    const Id low_places = graph_.binary("low_places", Op::Add, expand(low_), four);
    const Id low_bits = graph_.reshape(
        "low_bits", bits_at("low_picked", low_places, std::int64_t{tiles} * 4), {n_, tiles, 4});
    const Id odd = expand(odd_);
    const Id doubled = graph_.binary("doubled", Op::Mul, upper,
                                     graph_.binary("one_more", Op::Add, odd, graph_.scalar(1)));
    return graph_.binary("codes_of_tiles", Op::Add, doubled,
                         graph_.binary("lowest", Op::Mul, low_bits, odd));
  }

  // The step of each block, NaN for headers that do not fit, [N, 1].
  Id step() {
    graph_.note("Steps, from a table: q means the f32 with the bits q * 2^21.");
    std::vector<float> weights, table;
    for (int bit = 0; bit < 10; ++bit) weights.push_back(static_cast<float>(1 << bit));
    const Id q = fields("q", 1, 10, weights);
    for (int i = 0; i < 1024; ++i) {
      const bool known = i >= dct_quant::kLeastStep && i < dct_quant::kNoStep;
      const bool nothing = form_.bias > 0 && i == dct_quant::kNothing;
      table.push_back(nothing ? 0
                      : known ? dct_quant::step_of(i)
                              : std::numeric_limits<float>::quiet_NaN());
    }
    const char* python = form_.bias > 0 ? "step_table(zero=True)" : "step_table(zero=False)";
    const Id looked = graph_.lookup("looked_up", graph_.floats("steps_of_q", {1024}, table, python),
                                    graph_.cast("q_whole", q, DType::I64));
    const auto worst = [&](Id x) { return graph_.unary("worst", Op::Max, x); };
    const Id too_small = worst(scaled(given_, -1));
    const Id too_large = graph_.binary("too_large", Op::Sub, worst(given_),
                                       graph_.scalar(static_cast<float>(form_.max_width)));
    const Id faults = graph_.cat("faults", {too_small, too_large, scaled(left_, -1)}, -1);
    return graph_.where_greater("step_of_block", worst(faults), zero(),
                                graph_.scalar(std::numeric_limits<float>::quiet_NaN()), looked);
  }

  // The first coefficient: its upper bits are in the header and the tail.
  Id first(Id codes, Id steps) {
    graph_.note("The mean of a block has more bits: the upper ones are in the header.");
    // The header has all but low_dc of its bits (perhaps none); the others are first in the tail.
    const int begin = 14 + 2 * (form_.tiles - 1), count = form_.dc - low_dc_;
    std::vector<float> weights = powers_of(form_.dc);
    weights.back() = -weights.back();  // two's complement
    std::vector<Id> parts;
    if (low_dc_ != 0) {
      const Id order = graph_.floats("dc_order", {4}, {0, 1, 2, 3});
      parts.push_back(bits_at("dc_low_bits", graph_.binary("dc_places", Op::Add, tail_, order), 4));
    }
    if (count > 0) parts.push_back(graph_.slice("dc_high_bits", bits_, -1, begin, begin + count));
    const Id upper = graph_.matmul("dc", graph_.cat("dc_bits", std::move(parts), -1),
                                   graph_.floats("dc_powers", {form_.dc, 1}, weights));
    const Id power = graph_.slice("first_power", power_, -1, 0, 1);
    const Id flat = graph_.reshape("codes_flat", codes, {n_, std::int64_t{form_.tiles} * 4});
    const Id number =
        graph_.binary("first_number", Op::Add, graph_.binary("dc_shifted", Op::Mul, upper, power),
                      graph_.slice("first_code", flat, -1, 0, 1));
    return graph_.binary("first", Op::Mul, number, graph_.slice("first_step", steps, -1, 0, 1));
  }

  // Tiles to their places in the block; what is not coded is 0, or NaN with the rest.
  Id placed(Id values, Id first, Id step) {
    graph_.note("Coefficients to their places in the block.");
    const std::int64_t count = std::int64_t{form_.tiles} * 4;
    const Id flat = graph_.reshape("values_flat", values, {n_, count});
    const Id rest = graph_.binary("rest", Op::Mul, step, zero());
    const Id all = graph_.cat("all", {first, graph_.slice("others", flat, -1, 1, count), rest}, -1);
    std::vector<std::int64_t> from(64, count);
    for (int k = 0; k < form_.tiles; ++k) {
      for (int t = 0; t < 4; ++t)
        from[static_cast<std::size_t>(dct_quant::place(k, t))] = k * 4 + t;
    }
    return graph_.gather("coefs", all, graph_.wholes("places_in_block", std::move(from)));
  }

  Graph& graph_;
  Form form_;
  std::int64_t n_;
  int low_dc_ = 0;
  Id bits_, given_ = 0, left_ = 0, halved_ = 0, total_ = 0, even_ = 0, odd_ = 0, power_ = 0;
  Id begin_ = 0, tail_ = 0, low_ = 0;
};

}  // namespace

Id add_dct_quant_back(Graph& graph, const Stage& stage, Id packed, DType dtype,
                      const Shape& shape) {
  const dct_quant::Params p = dct_quant::Params::of(stage);
  const Blocks b = Blocks::of("dct_quant", 8, shape, "block_quant");
  const std::int64_t n = b.planes * b.block_rows * b.block_cols;
  const Id rows = graph.reshape("blocks_of_bytes", packed, {n, p.form.bytes});
  const Id coefs = Decoder(graph, p.form, graph.cast("bytes", rows, DType::F32)).coefficients();
  graph.note("The inverse DCT of each block, and blocks to their places in the plane.");
  const MatmulForm dct = matmul_form(CodecSpec::parse("dct_chop(keep=8)"), 8, 8);
  const Id matrix = graph.reshape("matrices", coefs, {n, 8, 8});
  const Id right = graph.matmul("right", matrix, graph.floats("rhs", {8, 8}, dct.back_rhs.values));
  Id values =
      graph.matmul("values_of_blocks", graph.floats("lhs", {8, 8}, dct.back_lhs.values), right);
  values = graph.reshape("block_grid", values, {b.planes, b.block_rows, b.block_cols, 8, 8});
  values = graph.permute("grid", values, {0, 1, 3, 2, 4});
  values = graph.reshape("padded", values, {b.planes, b.block_rows * 8, b.block_cols * 8});
  values = graph.slice("cut_rows", values, -2, 0, b.rows);
  values = graph.slice("cut", values, -1, 0, b.cols);
  if (p.offset != 0) values = graph.binary("moved", Op::Add, values, graph.scalar(p.offset));
  if (p.clamp)
    values = graph.clamp("not_negative", values, 0, std::numeric_limits<float>::infinity());
  return graph.reshape("x_shaped", graph.cast("x_cast", values, dtype), shape);
}

}  // namespace tuckfold::portable
