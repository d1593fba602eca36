// Files of devices: what is wrong with one is said with its field.
#include <gtest/gtest.h>

#include <fstream>

#include "tuckfold/devices.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

std::string refusal(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    return error.what();
  }
  return "accepted";
}

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

TEST(DeviceFile, AFileOfOnesOwnIsAnAnswer) {
  const DeviceInfo toy = parse_device(kGood, "toy.json");
  EXPECT_TRUE(
      fits(toy, CodecSpec::parse("dct_chop(keep=4)"), DType::F32, {1, 64, 64}, Direction::Both)
          .fits);
  const Fit fit =
      fits(toy, CodecSpec::parse("dct_chop(keep=4)"), DType::F32, {1, 72, 72}, Direction::Both);
  EXPECT_EQ(fit.why, "a matrix has a side of 72, and it is small (me, page 2)");
}

TEST(DeviceFile, AWrongFieldIsNamed) {
  const auto why = [](std::string_view from, std::string_view to) {
    const std::string text = changed(from, to);
    return refusal([&] { parse_device(text, "toy.json"); });
  };
  EXPECT_EQ(why(R"("name": "toy", )", ""), "[device] toy.json: the field name is missing");
  // One text, whatever is wrong with a number.
  for (const char* value : {"-1", "0", "\"big\"", "null"}) {
    const std::string given = "\"value\": " + std::string(value);
    EXPECT_EQ(why(R"("value": 1000)", given),
              "[device] toy.json: numbers.on_chip_bytes.value must be a number above 0, got " +
                  std::string(value));
    EXPECT_EQ(
        why(R"("value": 64)", given),
        "[device] toy.json: limits[0].value must be a number above 0, got " + std::string(value));
  }
  EXPECT_EQ(
      why(R"("limits")",
          R"("host_call": {"settings": [{"t0_ms": 0}], "error": 0, "points": "p", "source": "me", "at": "1"}, "limits")")
          .find("host_call.settings must be settings of which each takes time"),
      19u);
  EXPECT_EQ(
      why(R"("limits")",
          R"("host_call": {"settings": [{"t0_ms": 1, "in_gbps": 0}], "error": 0, "points": "p", "source": "me", "at": "1"}, "limits")")
          .find("host_call.settings[0].in_gbps must be a number from 1e-6 to 1e9, and left out "
                "where it takes no time, got 0"),
      19u);
  EXPECT_EQ(
      why(R"("limits")",
          R"("host_call": {"settings": [{"t0_ms": 1}], "flat": {"ms": 0, "until": [2, 3], "source": "me", "at": "1"}, "error": 0, "points": "p", "source": "me", "at": "1"}, "limits")")
          .find("host_call.flat.ms must be a number above 0"),
      19u);
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
  EXPECT_EQ(why(R"("value": 64)", R"("value": 64, "sample": [8, 8])"),
            "[device] toy.json: limits[0].sample must be left out: the rule matrix_side has no "
            "sample, got [8, 8]");
  for (const char* sample : {"[64]", "[3, 64, 64]"}) {
    EXPECT_EQ(
        why(R"("rule": "matrix_side", "value": 64)",
            R"("rule": "planes", "value": 64, "sample": )" + std::string(sample)),
        "[device] toy.json: limits[0].sample must be a plane's two sides, [rows, columns], got " +
            std::string(sample));
  }
  for (const auto& [given, rule] :
       {std::pair(R"({"t0_ms": 1e308})", "t0_ms must be at most "),
        std::pair(R"({"t0_ms": 1, "tflops": 1e300})", "tflops must be "),
        std::pair(R"({"t0_ms": 1, "in_gbps": 1e-300})", "in_gbps must ")}) {
    const std::string call =
        R"("host_call": {"settings": [)" + std::string(given) +
        R"(], "error": 0, "points": "p", "source": "me", "at": "1"}, "limits")";
    EXPECT_EQ(why(R"("limits")", call).find("host_call.settings[0]." + std::string(rule)), 19u)
        << given;
  }
  EXPECT_EQ(why(R"("target": "torch")", R"("target": "tensorflow")").find("target must be one of"),
            19u);
  EXPECT_EQ(why(R"("kind": "none")", R"("kind": "none", "colour": 3)").find("unknown field colour"),
            19u);
  EXPECT_EQ(why("}]", "}").substr(0, 32), "[device] toy.json is no JSON: [j");
}

TEST(DeviceFile, NothingIsListedTwice) {
  const auto why = [](std::string_view from, std::string_view to) {
    const std::string text = changed(from, to);
    return refusal([&] { parse_device(text, "toy.json"); });
  };
  EXPECT_EQ(why(R"(["matmul"])", R"(["matmul", "add", "matmul"])"),
            "[device] toy.json: operators[0].names[2] must be listed once, got \"matmul\"");
  EXPECT_EQ(why(R"("operators": [)",
                R"("operators": [{"names": ["matmul"], "source": "me", "at": "page 3"}, )"),
            "[device] toy.json: operators[1].names[0] must be listed once, got \"matmul\"");
  EXPECT_EQ(why(R"(["f32"])", R"(["f32", "f32"])"),
            "[device] toy.json: dtypes.names[1] must be listed once, got \"f32\"");
  const std::string gather = R"({"name": "gather", "text": "no", "source": "me", "at": "page 1"})";
  EXPECT_EQ(why(R"("limits")", "\"missing\": [" + gather + ", " + gather + "], \"limits\""),
            "[device] toy.json: missing[1].name must be listed once, got \"gather\"");
}

// Texts are printed: one that moves the cursor or colours what follows is refused.
TEST(DeviceFile, ATextIsOneLine) {
  for (const char* bad :
       {R"(two\nlines)", R"(red \u001b[31m)", R"(\u007f)", R"(\u009b31m)", R"(\t)"}) {
    const std::string text = changed(R"("it is small")", '"' + std::string(bad) + '"');
    const std::string said = refusal([&] { parse_device(text, "toy.json"); });
    EXPECT_EQ(said,
              "[device] toy.json: limits[0].text must be a text of one line, without control "
              "characters, got \"" +
                  std::string(bad) + '"');
  }
  EXPECT_EQ(
      parse_device(changed("it is small", "it is schön, 362 × 362"), "toy.json").limits[0].text,
      "it is schön, 362 × 362");
  // Nor do messages have what a file has between its braces.
  const std::string spread =
      changed(R"({"names": ["f32"], "source": "me", "at": "page 1"})", "[\n\n1,\n\t2]");
  EXPECT_EQ(refusal([&] { parse_device(spread, "toy.json"); }),
            "[device] toy.json: dtypes must be an object, got [  1,  2]");
  const std::string key = changed(R"("kind")", R"("a\u001bb": 1, "kind")");
  EXPECT_EQ(refusal([&] { parse_device(key, "toy.json"); }).find('\x1b'), std::string::npos);
}

TEST(DeviceFile, NotesAreTexts) {
  const std::vector<std::pair<std::string, std::string>> places = {
      {R"("names": ["f32"])", "dtypes"},
      {R"("names": ["matmul"])", "operators[0]"},
      {R"("value": 1000)", "numbers.on_chip_bytes"}};
  const auto said = [](const std::string& text) {
    return refusal([&] { parse_device(text, "toy.json"); });
  };
  for (const char* note : {"null", "-1", "{}", "\"\""}) {
    const std::string with_note = std::string("\"note\": ") + note + ", ";
    const std::string end = " must be a text, got " + std::string(note);
    for (const auto& [place, field] : places) {
      EXPECT_EQ(said(changed(place, with_note + place)),
                "[device] toy.json: " + field + ".note" + end);
    }
    for (const std::string field : {"serialize", "triangle"}) {
      EXPECT_EQ(said(changed(R"("limits")", '"' + field + R"(": {"slower": 1, )" + with_note +
                                                R"("source": "me", "at": "1"}, "limits")")),
                "[device] toy.json: " + field + ".note" + end);
    }
    EXPECT_EQ(
        said(changed(
            R"("limits")",
            R"("host_call": {"settings": [{"t0_ms": 1}], "flat": {"ms": 1, "until": [2, 3], )" +
                with_note +
                R"("source": "me", "at": "1"}, "error": 0, "points": "p", "source": "me", "at": "1"}, "limits")")),
        "[device] toy.json: host_call.flat.note" + end);
  }
}

TEST(DeviceFile, AByteOrderMarkIsSkipped) {
  EXPECT_EQ(parse_device("\xEF\xBB\xBF" + std::string(kGood), "toy.json").name, "toy");
}

TEST(DeviceFile, ADeviceWithoutTypesSaysSo) {
  const Fit fit = fits(DeviceInfo{}, CodecSpec::parse("dct_chop(keep=4)"), DType::F32, {1, 64, 64},
                       Direction::Both);
  EXPECT_EQ(fit.why, "the codec needs f32, and its file lists no types");
  EXPECT_EQ(fit.remedy, "");
}

TEST(DeviceFile, AFileHasTheNameOfItsDevice) {
  const std::string folder = testing::TempDir();
  for (const char* name : {"toy.json", "chip.json", "toy"}) {
    std::ofstream(folder + name) << kGood;
  }
  EXPECT_EQ(read_device(folder + "toy.json").name, "toy");
  EXPECT_EQ(read_device(folder + "toy.json").file, folder + "toy.json");
  EXPECT_EQ(parse_device(kGood, "toy.json").file, "");
  EXPECT_EQ(read_device(folder + "toy").name, "toy");  // a pipe, say
  EXPECT_EQ(refusal([&] { read_device(folder + "chip.json"); }),
            "[device] " + folder +
                "chip.json: name must be that of the file, \"chip\", got \"toy\"; change either");
}

TEST(DeviceFile, AFileThatIsNotThereIsIo) {
  try {
    read_device("no_such_device.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::Io);
  }
}

}  // namespace
}  // namespace tuckfold
