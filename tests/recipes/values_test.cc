// SPDX-License-Identifier: Apache-2.0
#include "recipes/values.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace bantam;

TEST_CASE("numbers come in all usual spellings and nothing else") {
  for (const char* text : {"1e-4", "1E-4", "1.e-4", ".1e-3", "0.0001", "+1e-4", "1.0e-04"}) {
    CAPTURE(text);
    REQUIRE(parse_number(text).has_value());
    CHECK(*parse_number(text) == 1e-4);
  }
  for (const char* text : {"", " 1", "1 ", "1e", "e4", "1_000", "0x10", "nan", ".nan", "inf", "-.inf", "1e999", "1,5",
                           "+-1", "++1", "1:30"}) {
    CAPTURE(text);
    CHECK(!parse_number(text).has_value());
  }
}

TEST_CASE("whole numbers are decimal") {
  CHECK(parse_integer("012") == 12);
  CHECK(parse_integer("-7") == -7);
  CHECK(parse_integer("9223372036854775807") == INT64_MAX);
  for (const char* text : {"9223372036854775808", "1e3", "8.0", "0x10", "0o14", "1_000", "", "1 "}) {
    CAPTURE(text);
    CHECK(!parse_integer(text).has_value());
  }
}

TEST_CASE("booleans are one documented set") {
  for (const char* text : {"true", "True", "TRUE", "yes", "on", "Yes", "ON"}) CHECK(parse_bool(text) == true);
  for (const char* text : {"false", "False", "no", "off", "OFF", "NO"}) CHECK(parse_bool(text) == false);
  for (const char* text : {"1", "0", "y", "n", "tRue", "", "t"}) CHECK(!parse_bool(text).has_value());
}

TEST_CASE("rates") {
  for (const auto& [text, value] : {std::pair{"4e11", 4e11},
                                    {"400G", 4e11},
                                    {"400 GFLOPS", 4e11},
                                    {"90T", 9e13},
                                    {"1.5 PFLOP/s", 1.5e15},
                                    {"2k", 0.0},
                                    {"7e14flops", 7e14},
                                    {"12 M", 1.2e7}}) {
    CAPTURE(text);
    if (value > 0)
      CHECK(parse_rate(text) == value);
    else
      CHECK(!parse_rate(text));
  }
  for (const char* text : {"", "T", "-1T", "0", "fast", "1e30", "90X", "FLOPS"}) {
    CAPTURE(text);
    CHECK(!parse_rate(text));
  }
}

TEST_CASE("sizes take units") {
  CHECK(parse_size("1024") == 1024);
  CHECK(parse_size("10GiB") == int64_t{10} << 30);
  CHECK(parse_size("512 MiB") == int64_t{512} << 20);
  CHECK(parse_size("3KiB") == 3072);
  CHECK(parse_size("10GB") == 10'000'000'000);
  CHECK(parse_size("2MB") == 2'000'000);
  CHECK(parse_size("5kb") == 5000);
  CHECK(parse_size("1.5GiB") == (int64_t{3} << 30) / 2);
  for (const char* text :
       {"10G", "GiB", "", "-1GiB", "1.5", "1e3MiB", "9999999TiB", "9223372036854775807KB", "1..5GiB", "1 GiB x"}) {
    CAPTURE(text);
    CHECK(!parse_size(text).has_value());
  }
  for (int64_t bytes :
       {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1} << 30, int64_t{3} << 19, int64_t{5'000'000}}) {
    CHECK(parse_size(format_size(bytes)) == bytes);
  }
  CHECK(format_size(int64_t{512} << 20) == "512MiB");
}

TEST_CASE("numbers are written short and read back the same") {
  CHECK(format_number(2e-4) == "2e-4");
  CHECK(format_number(1e-8) == "1e-8");
  CHECK(format_number(0.999) == "0.999");
  for (double v : {0.1, 1.0 / 3, 1e-310, 123456789.125, 1e22, 2.5e-100}) CHECK(parse_number(format_number(v)) == v);
}

TEST_CASE("the nearest name") {
  const std::vector<std::string> names = {"learning_rate", "lora_r", "lora_alpha", "seed"};
  CHECK(nearest("learning_rte", names) == "learning_rate");
  CHECK(nearest("Learning-Rate", names) == "learning_rate");
  CHECK(nearest("sede", names) == "seed");
  CHECK(nearest("lora_alhpa", names) == "lora_alpha");
  CHECK(nearest("something_else", names).empty());
  CHECK(nearest(std::string(100000, 'x'), names).empty());
}

TEST_CASE("values in messages are short and printable") {
  CHECK(show("abc") == "\"abc\"");
  CHECK(show("a\nb\x01") == "\"a\\nb\\x01\"");
  CHECK(show(std::string(500, 'x')).size() < 100);
}
