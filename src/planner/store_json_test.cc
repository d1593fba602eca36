#include "planner/store_json.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tuckfold/error.h"

namespace tuckfold::planner {
namespace {

constexpr std::string_view kItems =
    R"~("base": [40, 40], "items": [{"name": "conv", "choices": [
         {"how": "keep", "spans": [[0, 1, 100]]},
         {"kind": "codec", "how": "block_quant(bits=4)", "spans": [[0, 1, 13], [1, 1, 60]],
          "seconds": 2e-4, "noise": 0.01}]}])~";

std::string with(std::string_view more) {
  return "{" + std::string(kItems) + std::string(more) + "}";
}

TEST(StoreJson, ABudgetDecides) {
  const std::string loose = plan_json(with(R"(, "budget": 140)"));
  EXPECT_EQ(loose, R"({"fits": true, "choice": [0], "peak": 140, "peak_position": 0, "noise": 0, )"
                   R"("seconds": 0, "cost": 0, "why": ""})");
  const std::string text = plan_json(with(R"(, "budget": 139, "seconds_weight": 10)"));
  const Json tight = Json::parse(text);
  EXPECT_EQ(tight.find("choice")->items[0].whole(), 1);
  EXPECT_EQ(tight.find("peak")->whole(), 113);
  EXPECT_EQ(tight.find("cost")->text, "0.012");
}

TEST(StoreJson, LimitsDecideWithoutABudget) {
  const std::string any = plan_json(with(""));
  EXPECT_EQ(Json::parse(any).find("peak")->whole(), 113);
  const std::string exact = plan_json(with(R"(, "noise": 0)"));
  EXPECT_EQ(Json::parse(exact).find("peak")->whole(), 140);
}

TEST(StoreJson, WrongTextsAreRefused) {
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string(R"({"base": []})"),
        std::string(R"({"base": 3, "items": []})"), std::string(R"({"base": [-1], "items": []})"),
        std::string(R"({"base": [1], "items": [7]})"),
        std::string(R"({"base": [1], "items": [{"choices": [{"spans": [[0, 0]]}]}]})"),
        std::string(R"({"base": [1], "items": [{"choices": [{"spans": [[0, 9e9, 1]]}]}]})"),
        std::string(R"({"base": [1], "items": [{"choices": [{"spans": [[0, 4294967296, 1]]}]}]})"),
        std::string(R"({"base": [1], "items": [{"choices": [{"spans": [], "kind": "zip"}]}]})"),
        with(R"(, "budget": -1)"), with(R"(, "noise": "none")")}) {
    EXPECT_THROW(plan_json(text), Error) << text;
  }
}

}  // namespace
}  // namespace tuckfold::planner
