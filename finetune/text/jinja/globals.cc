// SPDX-License-Identifier: Apache-2.0
// range and strftime_now.
#include <algorithm>
#include <chrono>

#include "evaluator.h"

namespace bantam {
namespace {

using Kind = JinjaValue::Kind;
constexpr int64_t kMostNumbers = 100000;  // Jinja's MAX_RANGE

int64_t integer_argument(const JinjaValue& v) {
  if (v.is(Kind::boolean)) return v.boolean();
  if (v.is(Kind::undefined)) jinja_fail_undefined(v);
  if (!v.is(Kind::integer)) jinja_data_fault(str("'", jinja_type(v), "' object cannot be interpreted as an integer"));
  return v.integer();
}

std::string two(int n, int width = 2) {
  std::string s = std::to_string(n);
  return s.size() < static_cast<size_t>(width) ? std::string(static_cast<size_t>(width) - s.size(), '0') + s : s;
}

}  // namespace

JinjaValue jinja_range(JinjaArguments& arguments, JinjaWork& work) {
  if (!arguments.named.empty()) jinja_data_fault("range() takes no keyword arguments");
  const auto& a = arguments.positional;
  if (a.empty() || a.size() > 3) jinja_data_fault(str("range expected 1 to 3 arguments, got ", a.size()));
  const int64_t start = a.size() > 1 ? integer_argument(a[0]) : 0, stop = integer_argument(a[a.size() > 1 ? 1 : 0]),
                step = a.size() > 2 ? integer_argument(a[2]) : 1;
  if (step == 0) jinja_data_fault("range() arg 3 must not be zero");
  const long double span =
      (static_cast<long double>(stop) - static_cast<long double>(start)) / static_cast<long double>(step);
  if (span > static_cast<long double>(kMostNumbers)) {
    jinja_data_fault(str("Range too big. The sandbox blocks ranges larger than MAX_RANGE (", kMostNumbers, ")."));
  }
  JinjaValue::List items;
  for (int64_t v = start; step > 0 ? v < stop : v > stop;) {
    items.emplace_back(v);
    if (__builtin_add_overflow(v, step, &v)) break;
  }
  work.charge(items.size());
  JinjaValue out = jinja_sequence(SequenceKind::range, std::move(items));
  auto& range = as_sequence(out);
  range.start = start, range.stop = stop, range.step = step;
  return out;
}

std::string jinja_strftime(std::string_view format, const std::tm& time) {
  static constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                            "July",    "August",   "September", "October", "November", "December"};
  static constexpr const char* kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  const std::chrono::year_month_day date{std::chrono::year(time.tm_year + 1900),
                                         std::chrono::month(static_cast<unsigned>(time.tm_mon + 1)),
                                         std::chrono::day(static_cast<unsigned>(time.tm_mday))};
  if (!date.ok() || time.tm_hour < 0 || time.tm_hour > 23 || time.tm_min < 0 || time.tm_min > 59) {
    jinja_data_fault("strftime_now: the clock gives no date");
  }
  const std::chrono::sys_days day = date;
  const unsigned weekday = std::chrono::weekday(day).c_encoding();
  const auto in_year = (day - std::chrono::sys_days(date.year() / std::chrono::January / 1)).count() + 1;
  const int hour12 = time.tm_hour % 12 == 0 ? 12 : time.tm_hour % 12;
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    const char c = ++i < format.size() ? format[i] : '\0';
    switch (c) {
      case 'Y':
        out += std::to_string(time.tm_year + 1900);
        break;
      case 'y':
        out += two((time.tm_year + 1900) % 100);
        break;
      case 'm':
        out += two(time.tm_mon + 1);
        break;
      case 'd':
        out += two(time.tm_mday);
        break;
      case 'H':
        out += two(time.tm_hour);
        break;
      case 'I':
        out += two(hour12);
        break;
      case 'M':
        out += two(time.tm_min);
        break;
      case 'S':
        out += two(time.tm_sec);
        break;
      case 'j':
        out += two(static_cast<int>(in_year), 3);
        break;
      case 'p':
        out += time.tm_hour < 12 ? "AM" : "PM";
        break;
      case 'B':
        out += kMonths[time.tm_mon];
        break;
      case 'b':
        out.append(kMonths[time.tm_mon], 3);
        break;
      case 'A':
        out += kDays[weekday];
        break;
      case 'a':
        out.append(kDays[weekday], 3);
        break;
      case '%':
        out.push_back('%');
        break;
      default:
        jinja_unsupported(str("strftime_now: '%", std::string(c == '\0' ? 0 : 1, c),
                              "' is not supported (%Y %y %m %d %H %I %M %S %j %p %B %b %A %a are)"));
    }
  }
  return out;
}

}  // namespace bantam
