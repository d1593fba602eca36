// The files of devices/: each is well formed, cites the source of each number, and gives the
// verdicts and times that its sources state (tests/facts).
#include "tuckfold/devices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

const std::string kRoot = TUCKFOLD_SOURCE_DIR;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<DeviceInfo> all_devices() {
  std::vector<DeviceInfo> devices;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot + "/devices")) {
    devices.push_back(read_device(entry.path().string()));
    EXPECT_EQ(devices.back().name, entry.path().stem());
  }
  return devices;
}

DeviceInfo device(const std::string& name) {
  return read_device(kRoot + "/devices/" + name + ".json");
}

Shape shape_of(const Json& json) {
  Shape shape;
  for (const Json& axis : json.items) shape.push_back(axis.whole());
  return shape;
}

double number_of(const Json& json) { return std::stod(std::string(json.text)); }

std::string refusal(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(Devices, AllOfTheSpecificationAreThere) {
  std::vector<std::string> names;
  for (const DeviceInfo& one : all_devices()) names.push_back(one.name);
  for (const char* name :
       {"cs2", "sn30", "groqchip", "ipu-gc200", "ipu-bow", "a100", "a30", "h200", "cpu"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
}

TEST(Devices, EverySourceIsUsed) {
  for (const DeviceInfo& one : all_devices()) {
    const std::string text = text_of(kRoot + "/devices/" + one.name + ".json");
    for (const auto& [key, title] : one.sources) {
      EXPECT_NE(text.find("\"source\": \"" + key + "\""), text.npos) << one.name << ": " << key;
    }
  }
}

TEST(Devices, TheStatedVerdictsAreGiven) {
  const std::string text = text_of(kRoot + "/tests/facts/hpdc24.json");
  const Json facts = Json::parse(text);
  const auto& verdicts = facts.find("verdicts")->items;
  EXPECT_GE(verdicts.size(), 30u);
  for (const Json& fact : verdicts) {
    const bool stated = fact.find("fits")->text == "true";
    const Fit fit = fits(
        device(fact.find("device")->string), CodecSpec::parse(fact.find("codec")->string),
        parse_dtype(fact.find("dtype")->string), shape_of(*fact.find("shape")), Direction::Both);
    EXPECT_EQ(fit.fits, stated) << fact.text << "\n" << fit.why;
    EXPECT_FALSE(fit.why.empty());
    EXPECT_EQ(fit.why.find('\n'), fit.why.npos);
  }
}

TEST(Devices, RemediesWork) {
  const auto remedy = [](const char* name, const char* spec, DType dtype, const Shape& shape) {
    return fits(device(name), CodecSpec::parse(spec), dtype, shape, Direction::Both).remedy;
  };
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {100, 3, 512, 512}), "use serialize=2");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 2048, 2048}), "use serialize=8");
  // 75 x 75 and 55 x 55 blocks: no even number divides them.
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 600, 600}), "use serialize=3");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 440, 440}), "use serialize=5");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 8 * 53, 8 * 53}),
            "use serialize=53");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F32, {4, 8 * 67, 8 * 67}), "");
  EXPECT_EQ(remedy("sn30", "dct_chop(keep=4)", DType::F16, {100, 3, 64, 64}), "use --dtype f32");
  EXPECT_EQ(remedy("groqchip", "dct_chop(keep=4)", DType::F32, {1001, 3, 64, 64}),
            "use a batch of 1000 at most");
  EXPECT_EQ(remedy("groqchip", "dct_chop(keep=4, shape=triangle)", DType::F32, {10, 3, 64, 64}),
            "use shape=square");
  EXPECT_EQ(remedy("cs2", "dct_chop(keep=4, coef=bf16)", DType::F32, {10, 3, 64, 64}),
            "use coef=f32");
  // Both a limit of sides and one of memory.
  const std::string both = remedy("groqchip", "dct_chop(keep=4)", DType::F32, {100, 3, 512, 512});
  EXPECT_EQ(both, "use serialize=2 and a batch of 32 at most");
}

// A batch's remedy is the largest that fits: one more does not.
TEST(Devices, TheBatchOfARemedyIsTheLargest) {
  const DeviceInfo groq = device("groqchip");
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=7)");
  const std::string remedy =
      fits(groq, spec, DType::F32, {900, 3, 256, 256}, Direction::Both).remedy;
  const auto batch = std::stoll(remedy.substr(std::string("use a batch of ").size()));
  EXPECT_TRUE(fits(groq, spec, DType::F32, {batch, 3, 256, 256}, Direction::Both).fits) << remedy;
  EXPECT_FALSE(fits(groq, spec, DType::F32, {batch + 1, 3, 256, 256}, Direction::Both).fits)
      << remedy;
}

// The paper ran 362 x 362 at most in one PMU.
TEST(Devices, AMatrixOfOnePmuIs362Square) {
  const DeviceInfo sn30 = device("sn30");
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=7)");
  EXPECT_TRUE(fits(sn30, spec, DType::F32, {1, 362, 362}, Direction::Both).fits);
  EXPECT_FALSE(fits(sn30, spec, DType::F32, {1, 363, 363}, Direction::Both).fits);
}

// The memory of a codec is X (1 + CF/8 + CF²/64) and its matrices.
TEST(Devices, MemoryIsTensorMiddleAndPacked) {
  for (int keep = 2; keep <= 7; ++keep) {
    const CodecSpec spec = CodecSpec::parse("dct_chop(keep=" + std::to_string(keep) + ")");
    const double x = 100 * 3 * 256 * 256 * 4, cf = keep / 8.0;
    const double want = x * (1 + cf + cf * cf) + 2 * (256 * cf * 256 * 4);
    const Fit fit = fits(device("groqchip"), spec, DType::F32, {100, 3, 256, 256}, Direction::Pack);
    EXPECT_EQ(fit.why.substr(0, 9), "it takes ");
    EXPECT_NEAR(std::stod(fit.why.substr(9)) * 1e6, want, 0.001 * want) << fit.why;
  }
}

double gbps(const DeviceInfo& on, const std::string& spec, std::int64_t side, Direction direction) {
  const Shape shape{100, 3, side, side};
  const double bytes = static_cast<double>(shape.elems()) * 4;
  return bytes / host_call_time(on, CodecSpec::parse(spec), DType::F32, shape, direction).seconds /
         1e9;
}

double predicted(const DeviceInfo& ipu, const Json& fact) {
  const std::string& figure = fact.find("figure")->string;
  if (figure == "pack_mean_gbps") {
    double sum = 0;
    for (const std::int64_t side : {32, 64, 128, 256, 512})
      sum += gbps(ipu, "dct_chop(keep=4)", side, Direction::Pack);
    return sum / 5;
  }
  const std::string keep = "dct_chop(keep=" + std::string(fact.find("keep")->text);
  if (figure == "unpack_gbps") return gbps(ipu, keep + ")", 512, Direction::Unpack);
  // Four times the pixels: the ratio of times is four times that of throughputs.
  return 4 * gbps(ipu, keep + ")", 256, Direction::Unpack) /
         gbps(ipu, keep + ", serialize=2)", 512, Direction::Unpack);
}

TEST(Devices, TheFiveFiguresOfTheIpuAreWithinFivePercent) {
  const std::string text = text_of(kRoot + "/tests/facts/hpdc24.json");
  const Json facts = Json::parse(text);
  const auto& figures = facts.find("ipu_figures")->items;
  ASSERT_EQ(figures.size(), 5u);
  for (const Json& fact : figures) {
    const double stated = number_of(*fact.find("value"));
    EXPECT_NEAR(predicted(device("ipu-bow"), fact), stated, 0.05 * stated) << fact.text;
  }
}

// What a source states is within what is predicted for its shape, or over the paper's five
// resolutions where it names none.
TEST(Devices, IntervalsMeetWhatIsStated) {
  for (const DeviceInfo& one : all_devices()) {
    for (const Statement& said : one.stated) {
      const std::vector<int> keeps = said.keep.empty() ? std::vector<int>{4} : said.keep;
      double least = 1e30, most = 0;
      for (const int keep : keeps) {
        for (const std::int64_t side : {32, 64, 128, 256, 512}) {
          const Shape shape = said.shape.rank() > 0 ? said.shape : Shape{100, 3, side, side};
          const CodecSpec spec = CodecSpec::parse("dct_chop(keep=" + std::to_string(keep) + ")");
          if (!fits(one, spec, DType::F32, shape, Direction::Both).fits) continue;
          const HostCallTime time =
              host_call_time(one, spec, DType::F32, shape,
                             said.direction == "pack" ? Direction::Pack : Direction::Unpack);
          const double bytes = static_cast<double>(shape.elems()) * 4;
          EXPECT_LE(time.low, time.seconds);
          EXPECT_GE(time.high, time.seconds);
          least = std::min(least, bytes / time.high / 1e9);
          most = std::max(most, bytes / time.low / 1e9);
        }
      }
      EXPECT_LE(least, said.gbps_high * 1.05) << one.name << ": " << said.text;
      EXPECT_GE(most, said.gbps_low * 0.95) << one.name << ": " << said.text;
    }
  }
}

TEST(Devices, SerializingCostsWhatIsStatedOnTheIpu) {
  const DeviceInfo ipu = device("ipu-bow");
  const Shape shape{100, 3, 512, 512};
  const auto time = [&](const char* spec) {
    return host_call_time(ipu, CodecSpec::parse(spec), DType::F32, shape, Direction::Unpack);
  };
  const HostCallTime plain = time("dct_chop(keep=4)"),
                     tiled = time("dct_chop(keep=4, serialize=2)");
  EXPECT_GE(tiled.seconds / plain.seconds, 1.01 - 1e-9);
  EXPECT_LE(tiled.seconds / plain.seconds, 1.08);
  EXPECT_NEAR(tiled.high / plain.high, 1.08, 1e-9);
  const Fit fit = fits(ipu, CodecSpec::parse("dct_chop(keep=4, serialize=2)"), DType::F32, shape,
                       Direction::Both);
  EXPECT_NE(fit.why.find("1 to 8 %"), fit.why.npos) << fit.why;
}

// Whatever a call of 256 x 256 takes within its interval, 512 x 512 in tiles takes 2.5 to 3.8 times
// that (section 4.2.3), which its interval holds, and little more.
TEST(Devices, TilesOnTheSn30TakeAsLongAsIsStated) {
  const DeviceInfo sn30 = device("sn30");
  for (int keep = 2; keep <= 7; ++keep) {
    const auto time = [&](const char* rest, std::int64_t side) {
      const std::string spec = "dct_chop(keep=" + std::to_string(keep) + rest;
      return host_call_time(sn30, CodecSpec::parse(spec), DType::F32, {100, 3, side, side},
                            Direction::Unpack);
    };
    const HostCallTime whole = time(")", 256), tiled = time(", serialize=2)", 512);
    EXPECT_LE(tiled.low, 2.5 * whole.low);
    EXPECT_GE(tiled.high, 3.8 * whole.high);
    EXPECT_GT(tiled.low, 2.4 * whole.low);
    EXPECT_LT(tiled.high, 3.9 * whole.high);
    EXPECT_NE(tiled.how.find("tiles take 0.63 to 0.98 times as long (hpdc24, section 4.2.3)"),
              tiled.how.npos)
        << tiled.how;
  }
}

// "Performance does not change significantly until the batch passes 2000" of 3 x 64 x 64: one time is
// within the intervals of all these batches.
TEST(Devices, OneTimeOfTheCs2IsWithinAllBatchesUpTo2000) {
  const auto time = [](std::int64_t batch, std::int64_t side) {
    return host_call_time(device("cs2"), CodecSpec::parse("dct_chop(keep=4)"), DType::F32,
                          {batch, 3, side, side}, Direction::Unpack);
  };
  double least = 1e30, most = 0;
  for (const std::int64_t batch : {10, 20, 50, 100, 200, 500, 1000, 2000}) {
    least = std::min(least, time(batch, 64).high);
    most = std::max(most, time(batch, 64).low);
  }
  EXPECT_LE(most, least);
  // Beyond, and for larger samples, throughput is what is stated.
  EXPECT_GT(time(2001, 64).low, 10 * time(2000, 64).low);
  EXPECT_GT(time(100, 65).low, time(100, 64).low);
  EXPECT_NE(time(2000, 64).how.find("0.303 ms"), std::string::npos);
  EXPECT_EQ(time(2001, 64).how.find("0.303 ms"), std::string::npos);
}

TEST(Devices, TheTriangleTakesAsLongAsIsStated) {
  const DeviceInfo ipu = device("ipu-bow");
  const Shape shape{100, 3, 32, 32};
  for (const int keep : {2, 4, 7}) {
    const auto time = [&](const char* rest) {
      const std::string spec = "dct_chop(keep=" + std::to_string(keep) + rest;
      return host_call_time(ipu, CodecSpec::parse(spec), DType::F32, shape, Direction::Unpack);
    };
    const double slower = time(", shape=triangle)").seconds / time(")").seconds;
    EXPECT_GE(slower, 1.4) << keep;
    EXPECT_LE(slower, 2.75) << keep;
  }
}

TEST(Devices, WithoutACallTheTimeIsABound) {
  const HostCallTime time = host_call_time(device("a30"), CodecSpec::parse("dct_chop(keep=4)"),
                                           DType::F32, {100, 3, 256, 256}, Direction::Pack);
  EXPECT_EQ(time.high, std::numeric_limits<double>::infinity());
  // 7.535 GFLOP at TF32's 82 TFLOP/s, and 98.3 MB at 933 GB/s, which takes longer.
  EXPECT_NEAR(time.seconds, 98.304e6 / 933e9, 1e-7);
}

// Sources round their figures, and speak of dct_chop alone.
TEST(Devices, IntervalsAreAsWideAsSourcesLeaveThem) {
  const auto time = [](const char* name, const char* spec, Direction direction) {
    return host_call_time(device(name), CodecSpec::parse(spec), DType::F32, {100, 3, 32, 32},
                          direction);
  };
  for (const char* name : {"cs2", "sn30", "a100", "groqchip"}) {
    const HostCallTime unpack = time(name, "dct_chop(keep=4)", Direction::Unpack);
    EXPECT_GE(unpack.high, unpack.low * 1.15) << name;
  }
  const auto pack = [&](const char* name, const char* spec) {
    return time(name, spec, Direction::Pack);
  };
  EXPECT_EQ(pack("groqchip", "dct_chop(keep=2)").seconds,
            pack("groqchip", "dct_chop(keep=7)").seconds);
  EXPECT_EQ(pack("a100", "dct_chop(keep=2)").seconds, pack("a100", "dct_chop(keep=7)").seconds);
  for (const char* spec :
       {"block_quant(bits=8)", "dct_quant(rate=4)", "dct_chop(keep=4) | block_quant(bits=8)"}) {
    const HostCallTime unpack = time("ipu-bow", spec, Direction::Unpack);
    EXPECT_EQ(unpack.high, std::numeric_limits<double>::infinity()) << spec;
    EXPECT_NE(unpack.how.find("dct_chop alone"), unpack.how.npos) << unpack.how;
  }
}

// The SN30 outperforms the A100 (section 4.2.2).
TEST(Devices, TheSn30IsAheadOfTheA100) {
  for (const Direction direction : {Direction::Pack, Direction::Unpack}) {
    const auto time = [&](const char* name) {
      return host_call_time(device(name), CodecSpec::parse("dct_chop(keep=4)"), DType::F32,
                            {100, 3, 256, 256}, direction);
    };
    EXPECT_LT(time("sn30").high, time("a100").low);
  }
}

// The same values in other axes or a narrower type do not fit better.
TEST(Devices, PlanesCountHoweverAxesAreNamed) {
  const auto takes = [](DType dtype, const Shape& shape) {
    return fits(device("groqchip"), CodecSpec::parse("dct_chop(keep=4)"), dtype, shape,
                Direction::Both)
        .fits;
  };
  EXPECT_TRUE(takes(DType::F32, {1000, 3, 64, 64}));
  EXPECT_TRUE(takes(DType::F32, {3000, 64, 64}));
  for (const DType dtype : {DType::F32, DType::F16}) {
    for (const Shape& shape : std::vector<Shape>{
             {1001, 3, 64, 64}, {3003, 1, 64, 64}, {3003, 64, 64}, {7, 143, 3, 64, 64}}) {
      EXPECT_FALSE(takes(dtype, shape)) << to_string(shape);
    }
  }
}

TEST(Devices, SecondsLieBetweenTheEnds) {
  for (const DeviceInfo& one : all_devices()) {
    if (!one.host_call) continue;
    for (std::int64_t batch = 1; batch < 200; ++batch) {
      const HostCallTime time = host_call_time(one, CodecSpec::parse("dct_chop(keep=4)"),
                                               DType::F32, {batch, 3, 32, 32}, Direction::Pack);
      ASSERT_LE(time.low, time.seconds) << one.name << batch;
      ASSERT_LE(time.seconds, time.high) << one.name << batch;
    }
  }
}

TEST(Devices, WhatCannotBeWrittenInPlainOperatorsIsUnsupported) {
  try {
    fits(device("sn30"), CodecSpec::parse("bounded(abs=0.1)"), DType::F32, {8, 64, 64},
         Direction::Both);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::Unsupported);
    EXPECT_NE(std::string(error.what()).find("bounded"), std::string::npos);
  }
}

// ---- files that are wrong

constexpr const char* kGood = R"({
  "name": "toy", "title": "A toy", "kind": "none", "target": "torch", "software": "none",
  "sources": {"me": "a guess"},
  "numbers": {"on_chip_bytes": {"value": 1000, "source": "me", "at": "page 1"}},
  "dtypes": {"names": ["f32"], "source": "me", "at": "page 1"},
  "operators": [{"names": ["matmul"], "source": "me", "at": "page 1"}],
  "limits": [{"rule": "matrix_side", "value": 64, "text": "it is small", "source": "me", "at": "page 2"}]
})";

std::string changed(std::string_view from, std::string_view to) {
  std::string text = kGood;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Devices, AFileOfOnesOwnIsAnAnswer) {
  const DeviceInfo toy = parse_device(kGood, "toy.json");
  EXPECT_TRUE(
      fits(toy, CodecSpec::parse("dct_chop(keep=4)"), DType::F32, {1, 64, 64}, Direction::Both)
          .fits);
  const Fit fit =
      fits(toy, CodecSpec::parse("dct_chop(keep=4)"), DType::F32, {1, 72, 72}, Direction::Both);
  EXPECT_EQ(fit.why, "a matrix has a side of 72, and it is small (me, page 2)");
}

TEST(Devices, AWrongFieldIsNamed) {
  const auto why = [](std::string_view from, std::string_view to) {
    const std::string text = changed(from, to);
    return refusal([&] { parse_device(text, "toy.json"); });
  };
  EXPECT_EQ(why(R"("name": "toy", )", ""), "[device] toy.json: the field name is missing");
  EXPECT_EQ(why(R"("value": 1000)", R"("value": -1)"),
            "[device] toy.json: numbers.on_chip_bytes.value must be a number, 0 or above, got -1");
  EXPECT_EQ(why(R"("value": 1000)", R"("value": 0)"),
            "[device] toy.json: numbers.on_chip_bytes.value must be a number above 0, got 0");
  EXPECT_EQ(
      why(R"("limits")",
          R"("host_call": {"settings": [{"t0_ms": 0}], "error": 0, "points": "p", "source": "me", "at": "1"}, "limits")")
          .find("host_call.settings must be settings of which each takes time"),
      19u);
  EXPECT_EQ(
      why(R"("limits")",
          R"("host_call": {"settings": [{"t0_ms": 1, "in_gbps": 0}], "error": 0, "points": "p", "source": "me", "at": "1"}, "limits")")
          .find("host_call.settings[0].in_gbps must be above 0"),
      19u);
  EXPECT_EQ(
      why(R"("limits")",
          R"("host_call": {"settings": [{"t0_ms": 1}], "flat": {"ms": 0, "until": [2, 3], "source": "me", "at": "1"}, "error": 0, "points": "p", "source": "me", "at": "1"}, "limits")")
          .find("host_call.flat.ms must be above 0"),
      19u);
  EXPECT_EQ(
      why(R"("value": 1000)", R"("value": "big")"),
      "[device] toy.json: numbers.on_chip_bytes.value must be a number, 0 or above, got \"big\"");
  for (const char* keep : {"0", "2.5", "1e300"}) {
    const std::string stated =
        R"("stated": [{"text": "t", "direction": "pack", "gbps": 1, "keep": [)" +
        std::string(keep) + R"(], "source": "me", "at": "1"}], "limits")";
    EXPECT_EQ(why(R"("limits")", stated),
              "[device] toy.json: stated[0].keep[0] must be a whole number, 1 to 16, got " +
                  std::string(keep));
  }
  EXPECT_EQ(why("on_chip_bytes", "on_chip_byte"),
            "[device] toy.json: unknown field numbers.on_chip_byte; did you mean 'on_chip_bytes'?");
  EXPECT_EQ(why(R"("source": "me", "at": "page 2")", R"("at": "page 2")"),
            "[device] toy.json: the field limits[0].source is missing");
  EXPECT_EQ(why(R"("source": "me", "at": "page 2")", R"("source": "you", "at": "page 2")"),
            "[device] toy.json: limits[0].source must be a key of `sources`, got \"you\"");
  EXPECT_EQ(why(R"(["f32"])", R"(["f31"])").substr(0, 70),
            "[device] toy.json: dtypes.names[0] must be one of f32, f16, bf16, u8 (");
  EXPECT_EQ(why(R"(["matmul"])", R"(["matmull"])").find("operators[0].names[0]"), 19u);
  EXPECT_EQ(why("matrix_side", "matrix_sides").find("limits[0].rule"), 19u);
  EXPECT_EQ(why(R"("value": 64)", R"("value": 0)"),
            "[device] toy.json: limits[0].value must be above 0, got 0");
  EXPECT_EQ(why(R"("target": "torch")", R"("target": "tensorflow")").find("target must be one of"),
            19u);
  EXPECT_EQ(why(R"("kind": "none")", R"("kind": "none", "colour": 3)").find("unknown field colour"),
            19u);
  EXPECT_EQ(why("}]", "}").substr(0, 32), "[device] toy.json is no JSON: [j");
}

TEST(Devices, AFileHasTheNameOfItsDevice) {
  const std::string folder = testing::TempDir();
  for (const char* name : {"toy.json", "chip.json", "toy"}) {
    std::ofstream(folder + name) << kGood;
  }
  EXPECT_EQ(read_device(folder + "toy.json").name, "toy");
  EXPECT_EQ(read_device(folder + "toy").name, "toy");  // a pipe, say
  EXPECT_EQ(refusal([&] { read_device(folder + "chip.json"); }),
            "[device] " + folder +
                "chip.json: name must be that of the file, \"chip\", got \"toy\"; change either");
}

TEST(Devices, AFileThatIsNotThereIsIo) {
  try {
    read_device("no_such_device.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::Io);
  }
}

}  // namespace
}  // namespace tuckfold
