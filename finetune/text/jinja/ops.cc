// SPDX-License-Identifier: Apache-2.0
#include "ops.h"

#include <algorithm>
#include <cmath>

#include "unicode.h"

namespace bantam {
namespace {

using Kind = JinjaValue::Kind;

bool is_number(const JinjaValue& v) {
  return v.is(Kind::integer) || v.is(Kind::real) || v.is(Kind::boolean);
}
bool is_whole(const JinjaValue& v) {
  return v.is(Kind::integer) || v.is(Kind::boolean);
}
int64_t whole(const JinjaValue& v) {
  return v.is(Kind::boolean) ? int64_t{v.boolean()} : v.integer();
}
double as_double(const JinjaValue& v) {
  return v.is(Kind::real) ? v.real() : static_cast<double>(whole(v));
}
// Exact for both: its mantissa has 64 bits.
long double wide(const JinjaValue& v) {
  return v.is(Kind::real) ? static_cast<long double>(v.real()) : static_cast<long double>(whole(v));
}

// -1, 0, 1; 2 where one is not a number.
int order(long double a, long double b) {
  return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
}

const char* symbol(JinjaOperator op) {
  static constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%"};
  return kSymbols[static_cast<int>(op)];
}

[[noreturn]] void bad_operands(JinjaOperator op, const JinjaValue& a, const JinjaValue& b) {
  jinja_data_fault(
      str("unsupported operand type(s) for ", symbol(op), ": '", jinja_type(a), "' and '", jinja_type(b), "'"));
}

JinjaValue checked(bool overflow, int64_t value) {
  if (overflow) jinja_data_fault("a whole number beyond 64 bits");
  return value;
}

JinjaValue floor_divide(int64_t a, int64_t b, bool remainder) {
  if (b == 0) {
    jinja_data_fault(remainder ? "integer modulo by zero" : "integer division or modulo by zero");
  }
  if (b == -1) {  // INT64_MIN / -1 traps
    if (remainder) return 0;
    int64_t out = 0;
    const bool overflow = __builtin_sub_overflow(int64_t{0}, a, &out);
    return checked(overflow, out);
  }
  int64_t q = a / b, r = a % b;
  if (r != 0 && (r < 0) != (b < 0)) r += b, --q;
  return remainder ? r : q;
}

JinjaValue real_arithmetic(JinjaOperator op, double a, double b) {
  switch (op) {
    case JinjaOperator::add:
      return a + b;
    case JinjaOperator::subtract:
      return a - b;
    case JinjaOperator::multiply:
      return a * b;
    case JinjaOperator::divide:
      if (b == 0) jinja_data_fault("float division by zero");
      return a / b;
    default: {
      const bool modulo = op == JinjaOperator::modulo;
      if (b == 0) jinja_data_fault(modulo ? "float modulo" : "float floor division by zero");
      double r = std::fmod(a, b), q = (a - r) / b;
      if (r != 0 && (b < 0) != (r < 0)) {
        r += b;
        q -= 1;
      } else if (r == 0) {
        r = std::copysign(0.0, b);
      }
      if (modulo) return r;
      if (q == 0) return std::copysign(0.0, a / b);
      const double whole_part = std::floor(q);
      return q - whole_part > 0.5 ? whole_part + 1 : whole_part;
    }
  }
}

JinjaValue number_arithmetic(JinjaOperator op, const JinjaValue& a, const JinjaValue& b) {
  if (!is_whole(a) || !is_whole(b)) return real_arithmetic(op, as_double(a), as_double(b));
  const int64_t x = whole(a), y = whole(b);
  int64_t out = 0;
  switch (op) {
    case JinjaOperator::add: {
      const bool overflow = __builtin_add_overflow(x, y, &out);
      return checked(overflow, out);
    }
    case JinjaOperator::subtract: {
      const bool overflow = __builtin_sub_overflow(x, y, &out);
      return checked(overflow, out);
    }
    case JinjaOperator::multiply: {
      const bool overflow = __builtin_mul_overflow(x, y, &out);
      return checked(overflow, out);
    }
    case JinjaOperator::divide:
      if (y == 0) jinja_data_fault("division by zero");
      return static_cast<double>(static_cast<long double>(x) / static_cast<long double>(y));
    default:
      return floor_divide(x, y, op == JinjaOperator::modulo);
  }
}

JinjaValue repeat(const JinjaValue& v, int64_t times, JinjaWork& work) {
  times = std::max<int64_t>(times, 0);
  const size_t size = v.is(Kind::string) ? v.text().size() : v.items().size();
  if (size != 0 && static_cast<uint64_t>(times) > (uint64_t{1} << 40) / size) {
    jinja_data_fault(str("a value repeated ", times, " times is too large"));
  }
  if (v.is(Kind::string)) {
    work.charge_text(size * static_cast<size_t>(times));
    std::string out;
    if (size != 0)
      for (int64_t i = 0; i < times; ++i) out += v.text();
    return jinja_markup(std::move(out), is_markup(v));
  }
  work.charge(size * static_cast<size_t>(times));
  JinjaValue::List out;
  if (size != 0)
    for (int64_t i = 0; i < times; ++i) out.insert(out.end(), v.items().begin(), v.items().end());
  return jinja_sequence(as_sequence(v).kind, std::move(out));
}

bool is_plain_sequence(const JinjaValue& v) {
  return is_sequence_of(v, SequenceKind::list) || is_sequence_of(v, SequenceKind::tuple);
}

// '...' % values, as far as templates use it.
JinjaValue format_percent(const JinjaValue& format, const JinjaValue& values, JinjaWork& work) {
  const bool tuple = is_sequence_of(values, SequenceKind::tuple), markup = is_markup(format);
  size_t used = 0;
  std::string out;
  const std::string_view text = format.text();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (++i == text.size()) jinja_data_fault("incomplete format");
    if (text[i] == '%') {
      out.push_back('%');
      continue;
    }
    if (text[i] != 's' && text[i] != 'd' && text[i] != 'i' && text[i] != 'r') {
      jinja_unsupported(
          str("'%' formatting with '%", text.substr(i, 1), "' is not supported (%s, %d, %i, %r and %% are)"));
    }
    if (tuple ? used >= values.items().size() : used >= 1) jinja_data_fault("not enough arguments for format string");
    const JinjaValue& value = tuple ? values.items()[used] : values;
    ++used;
    std::string piece;
    if (text[i] == 's') {
      piece = jinja_str(value, work);
    } else if (text[i] == 'r') {
      jinja_append_repr(piece, value, work);
    } else if (!is_number(value)) {
      jinja_data_fault(str("%", text.substr(i, 1), " format: a real number is required, not ", jinja_type(value)));
    } else if (is_whole(value)) {
      piece = std::to_string(whole(value));
    } else {
      if (!(std::fabs(value.real()) < 9e18)) jinja_data_fault(str("cannot convert float ", python_float(value.real())));
      piece = std::to_string(static_cast<int64_t>(value.real()));
    }
    if (markup && !is_markup(value)) piece = html_escape(piece);
    work.charge_text(piece.size(), out.size());
    out += piece;
  }
  const bool all = tuple ? used == values.items().size() : used == 1 || values.is(Kind::dict);
  if (!all && !(is_plain_sequence(values) && !tuple)) {
    jinja_data_fault("not all arguments converted during string formatting");
  }
  return jinja_markup(std::move(out), markup);
}

// a < b of lists: the first items that differ decide.
bool compare_sequences(JinjaComparison op, const JinjaValue& a, const JinjaValue& b, JinjaWork& work) {
  const auto &x = a.items(), &y = b.items();
  size_t i = 0;
  while (i < x.size() && i < y.size() && jinja_equal(x[i], y[i], work)) ++i;
  if (i < x.size() && i < y.size()) return jinja_compare(op, x[i], y[i], work);
  const JinjaValue n = static_cast<int64_t>(x.size()), m = static_cast<int64_t>(y.size());
  return jinja_compare(op, n, m, work);
}

bool decide(JinjaComparison op, int order) {
  switch (op) {
    case JinjaComparison::less:
      return order == -1;
    case JinjaComparison::less_equal:
      return order == -1 || order == 0;
    case JinjaComparison::greater:
      return order == 1;
    default:
      return order == 1 || order == 0;
  }
}

}  // namespace

bool jinja_truth(const JinjaValue& v) {
  switch (v.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return v.boolean();
    case Kind::integer:
      return v.integer() != 0;
    case Kind::real:
      return v.real() != 0;
    case Kind::string:
      return !v.text().empty();
    case Kind::sequence:
      return as_sequence(v).kind == SequenceKind::iterator || !v.items().empty();
    case Kind::dict:
      return !v.entries().empty();
    default:
      return true;
  }
}

bool jinja_same_key(const JinjaValue& a, const JinjaValue& b) {
  if (is_number(a) && is_number(b)) return order(wide(a), wide(b)) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::string:
      return a.text() == b.text();
    case Kind::none:
    case Kind::undefined:
      return true;
    case Kind::sequence:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), jinja_same_key);
    default:
      return a.object() == b.object();
  }
}

bool jinja_equal(const JinjaValue& a, const JinjaValue& b, JinjaWork& work) {
  work.charge(1);
  if (is_number(a) && is_number(b)) return order(wide(a), wide(b)) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.object() != nullptr && a.object() == b.object()) return true;
  switch (a.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      if (a.text().size() != b.text().size()) return false;
      work.charge(a.text().size() / 64);
      return a.text() == b.text();
    case Kind::sequence: {
      const auto kind = as_sequence(a).kind;
      if (kind != as_sequence(b).kind || kind == SequenceKind::iterator || kind == SequenceKind::values) return false;
      const auto &x = a.items(), &y = b.items();
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i)
        if (!jinja_equal(x[i], y[i], work)) return false;
      return true;
    }
    case Kind::dict: {
      if (a.entries().size() != b.entries().size()) return false;
      for (const auto& [key, value] : a.entries()) {
        const JinjaValue* other = key.is(Kind::string) ? b.find(key.text()) : nullptr;
        if (!key.is(Kind::string)) {
          for (const auto& [k, v] : b.entries())
            if (jinja_same_key(k, key)) other = &v;
        }
        if (other == nullptr || !jinja_equal(value, *other, work)) return false;
      }
      return true;
    }
    default:
      return false;
  }
}

bool jinja_compare(JinjaComparison op, const JinjaValue& a, const JinjaValue& b, JinjaWork& work) {
  switch (op) {
    case JinjaComparison::equal:
      return jinja_equal(a, b, work);
    case JinjaComparison::not_equal:
      return !jinja_equal(a, b, work);
    case JinjaComparison::in:
      return jinja_contains(b, a, work);
    case JinjaComparison::not_in:
      return !jinja_contains(b, a, work);
    default:
      break;
  }
  work.charge(1);
  if (a.is(Kind::undefined)) jinja_fail_undefined(a);
  if (b.is(Kind::undefined)) jinja_fail_undefined(b);
  if (is_number(a) && is_number(b)) return decide(op, order(wide(a), wide(b)));
  if (a.is(Kind::string) && b.is(Kind::string)) {
    // The order of UTF-8 bytes is the order of code points.
    work.charge(std::min(a.text().size(), b.text().size()) / 64);
    const int c = a.text().compare(b.text());
    return decide(op, c < 0 ? -1 : c > 0 ? 1 : 0);
  }
  if (is_plain_sequence(a) && is_plain_sequence(b) && as_sequence(a).kind == as_sequence(b).kind) {
    return compare_sequences(op, a, b, work);
  }
  static constexpr const char* kSymbols[] = {"==", "!=", "<", "<=", ">", ">="};
  jinja_data_fault(str("'", kSymbols[static_cast<int>(op)], "' not supported between instances of '", jinja_type(a),
                       "' and '", jinja_type(b), "'"));
}

bool jinja_contains(const JinjaValue& container, const JinjaValue& item, JinjaWork& work) {
  switch (container.kind()) {
    case Kind::string:
      if (!item.is(Kind::string)) {
        jinja_data_fault(str("'in <string>' requires string as left operand, not ", jinja_type(item)));
      }
      work.charge(container.text().size() / 4);
      return text_find(container.text(), item.text()) != std::string::npos;
    case Kind::dict:
      if (item.is(Kind::dict) || is_sequence_of(item, SequenceKind::list)) {
        jinja_data_fault(str("unhashable type: '", jinja_type(item), "'"));
      }
      if (item.is(Kind::string)) return container.find(item.text()) != nullptr;
      work.charge(container.entries().size());
      return std::any_of(container.entries().begin(), container.entries().end(),
                         [&](const auto& e) { return jinja_same_key(e.first, item); });
    case Kind::undefined:
      return false;
    default: {
      if (!jinja_iterable(container)) {
        jinja_data_fault(str("argument of type '", jinja_type(container), "' is not iterable"));
      }
      if (is_sequence_of(container, SequenceKind::iterator)) {
        for (const auto& v : jinja_iterate(container, work))
          if (jinja_equal(v, item, work)) return true;
        return false;
      }
      for (const auto& v : container.items())
        if (jinja_equal(v, item, work)) return true;
      return false;
    }
  }
}

JinjaValue jinja_arithmetic(JinjaOperator op, const JinjaValue& a, const JinjaValue& b, JinjaWork& work) {
  if (op == JinjaOperator::modulo && a.is(Kind::string)) return format_percent(a, b, work);
  if (a.is(Kind::undefined)) jinja_fail_undefined(a);
  if (op == JinjaOperator::add && a.is(Kind::string) && b.is(Kind::string)) {
    work.charge_text(a.text().size() + b.text().size());
    const bool markup = is_markup(a) || is_markup(b);
    if (markup) work.charge((a.text().size() + b.text().size()) / 8);
    std::string out;
    out.reserve(a.text().size() + b.text().size());
    out += markup && !is_markup(a) ? html_escape(a.text()) : a.text();
    out += markup && !is_markup(b) ? html_escape(b.text()) : b.text();
    return markup ? jinja_markup(std::move(out), true) : JinjaValue(std::move(out));
  }
  if (b.is(Kind::undefined)) jinja_fail_undefined(b);
  if (is_number(a) && is_number(b)) return number_arithmetic(op, a, b);
  if (op == JinjaOperator::add) {
    if (is_plain_sequence(a) && is_plain_sequence(b) && as_sequence(a).kind == as_sequence(b).kind) {
      work.charge(a.items().size() + b.items().size());
      JinjaValue::List items = a.items();
      items.insert(items.end(), b.items().begin(), b.items().end());
      return jinja_sequence(as_sequence(a).kind, std::move(items));
    }
    if (is_plain_sequence(a) || (a.is(Kind::string) && !is_markup(a))) {
      jinja_data_fault(
          str("can only concatenate ", jinja_type(a), " (not \"", jinja_type(b), "\") to ", jinja_type(a)));
    }
  }
  if (op == JinjaOperator::multiply) {
    if ((a.is(Kind::string) || is_plain_sequence(a)) && is_whole(b)) return repeat(a, whole(b), work);
    if ((b.is(Kind::string) || is_plain_sequence(b)) && is_whole(a)) return repeat(b, whole(a), work);
    const JinjaValue& other = a.is(Kind::string) || is_plain_sequence(a) ? b : a;
    if (a.is(Kind::string) || is_plain_sequence(a) || b.is(Kind::string) || is_plain_sequence(b)) {
      jinja_data_fault(str("can't multiply sequence by non-int of type '", jinja_type(other), "'"));
    }
  }
  bad_operands(op, a, b);
}

JinjaValue jinja_negate(const JinjaValue& v, bool negative) {
  if (v.is(Kind::undefined)) jinja_fail_undefined(v);
  if (v.is(Kind::real)) return negative ? -v.real() : v.real();
  if (is_whole(v)) {
    int64_t out = whole(v);
    const bool overflow = negative && __builtin_sub_overflow(int64_t{0}, whole(v), &out);
    return checked(overflow, out);
  }
  jinja_data_fault(str("bad operand type for unary ", negative ? "-" : "+", ": '", jinja_type(v), "'"));
}

JinjaValue::List jinja_iterate(const JinjaValue& v, JinjaWork& work) {
  JinjaValue::List out;
  switch (v.kind()) {
    case Kind::undefined:
      return out;
    case Kind::string: {
      work.charge(4 * v.text().size());
      for (size_t i = 0, n = 0; i < v.text().size(); i += n) {
        text_code(std::string_view(v.text()).substr(i), n);
        out.push_back(JinjaValue(v.text().substr(i, n)));
      }
      return out;
    }
    case Kind::dict:
      work.charge(v.entries().size());
      for (const auto& entry : v.entries()) out.push_back(entry.first);
      return out;
    case Kind::sequence: {
      auto& sequence = as_sequence(v);
      work.charge(sequence.items.size());
      if (sequence.kind != SequenceKind::iterator) return sequence.items;
      out.assign(sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.read), sequence.items.end());
      sequence.read = sequence.items.size();
      return out;
    }
    default:
      jinja_data_fault(str("'", jinja_type(v), "' object is not iterable"));
  }
}

bool jinja_iterable(const JinjaValue& v) {
  return v.is(Kind::undefined) || v.is(Kind::string) || v.is(Kind::dict) || v.is(Kind::sequence);
}

int64_t jinja_length(const JinjaValue& v, JinjaWork& work) {
  switch (v.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      work.charge(v.text().size() / 8);
      return text_length(v.text());
    case Kind::dict:
      return static_cast<int64_t>(v.entries().size());
    case Kind::sequence:
      if (as_sequence(v).kind != SequenceKind::iterator) return static_cast<int64_t>(v.items().size());
      [[fallthrough]];
    default:
      jinja_data_fault(str("object of type '", jinja_type(v), "' has no len()"));
  }
}

void jinja_fail_undefined(const JinjaValue& v) {
  jinja_data_fault(static_cast<const JinjaUndefined&>(*v.object()).message());
}

}  // namespace bantam
