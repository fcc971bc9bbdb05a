// SPDX-License-Identifier: Apache-2.0
// Parsing of GGUF files. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include "gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "../kernels/error.h"

namespace bantam {

static_assert(std::endian::native == std::endian::little, "the reader copies little-endian numbers as they are");

namespace {

constexpr uint64_t kMaxKey = 65535;       // of the specification
constexpr uint64_t kMaxTensorName = 512;  // the specification says 64; some converters write more
constexpr int kMaxArrayDepth = 4;

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Bytes of a fixed-size value; 0 for strings and arrays.
size_t fixed_size(GgufType t) {
  switch (t) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      break;
  }
  return 0;
}

const char* type_word(GgufType t) {
  static constexpr const char* words[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                          "bool", "string", "array", "u64", "i64", "f64"};
  return words[static_cast<uint32_t>(t)];
}

// The block format of a ggml tensor type, whether decoded here or not: sizes are checked for all that are known.
struct BlockFormat {
  uint32_t type;
  const char* name;
  uint32_t elements, bytes;  // per block
};
constexpr BlockFormat kFormats[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
};
const BlockFormat* format_of(uint32_t type) {
  for (const auto& f : kFormats)
    if (f.type == type) return &f;
  return nullptr;
}

}  // namespace

std::string gguf_type_name(uint32_t type) {
  const auto* f = format_of(type);
  return f ? f->name : str("type ", type);
}

int64_t GgufTensor::cols() const {
  return shape.empty() ? 1 : shape.back();
}
int64_t GgufTensor::rows() const {
  int64_t n = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
  return n;
}

struct GgufFile::Parser {
  GgufFile& f;
  std::span<const std::byte> bytes;
  size_t at = 0;

  [[noreturn]] void bad(const std::string& what) const {
    throw Error(ErrorCode::model, str(f.path().string(), ": ", what), "download or convert the file again");
  }
  size_t left() const { return bytes.size() - at; }
  void need(uint64_t n, const std::string& what) const {
    if (n > left())
      bad(str("cut short at byte ", bytes.size(), ": ", what, " needs ", n, " bytes, ", left(), " are left"));
  }
  template <class T>
  T take(const std::string& what) {
    need(sizeof(T), what);
    const T v = load<T>(bytes.data() + at);
    at += sizeof(T);
    return v;
  }
  // Counts and lengths: 32 bits in version 1, 64 bits after.
  uint64_t count(const std::string& what) { return f.version_ == 1 ? take<uint32_t>(what) : take<uint64_t>(what); }
  size_t count_bytes() const { return f.version_ == 1 ? 4 : 8; }

  std::string text(uint64_t limit, const std::string& what) {
    const uint64_t n = count(str("the length of ", what));
    need(n, what);
    if (n > limit) bad(str(what, " is ", n, " bytes long, at most ", limit, " are read"));
    std::string s(reinterpret_cast<const char*>(bytes.data() + at), n);
    at += n;
    return s;
  }
  GgufType value_type(const std::string& what) {
    const uint32_t t = take<uint32_t>(what);
    if (t > static_cast<uint32_t>(GgufType::f64)) bad(str(what, " is ", t, ", expected 0 to 12"));
    return static_cast<GgufType>(t);
  }
  void skip_items(GgufType type, uint64_t n, const std::string& what, int depth) {
    if (const size_t size = fixed_size(type)) {
      if (n > left() / size)
        bad(str("cut short: ", what, " has ", n, " values of ", size, " bytes, ", left(), " bytes are left"));
      if (type == GgufType::boolean)
        for (uint64_t i = 0; i < n; ++i)
          if (static_cast<unsigned>(bytes[at + i]) > 1)
            bad(str(what, ": a bool is ", static_cast<unsigned>(bytes[at + i])));
      at += n * size;
    } else if (type == GgufType::string) {
      if (n > left() / count_bytes())
        bad(str("cut short: ", what, " has ", n, " strings, ", left(), " bytes are left"));
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t length = count(what);
        need(length, what);
        at += length;
      }
    } else {
      if (depth >= kMaxArrayDepth) bad(str(what, ": arrays are nested too deeply"));
      for (uint64_t i = 0; i < n; ++i) {
        const GgufType element = value_type(str("the element type of ", what));
        skip_items(element, count(what), what, depth + 1);
      }
    }
  }

  void metadata(uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) {
      const std::string key = text(kMaxKey, str("key ", i, " of the metadata"));
      const std::string what = str("'", key, "'");
      Value v;
      v.type = value_type(str("the type of ", what));
      if (v.type == GgufType::array) {
        v.element = value_type(str("the element type of ", what));
        v.count = count(str("the count of ", what));
      } else {
        v.element = v.type;
      }
      v.at = bytes.data() + at;
      skip_items(v.element, v.count, what, 0);
      if (!f.values_.emplace(key, v).second) bad(str("the key ", what, " stands twice"));
    }
  }

  struct Pending {
    uint64_t offset = 0, bytes = 0;
  };
  Pending tensor_info(GgufTensor& t, uint64_t i) {
    t.name = text(kMaxTensorName, str("the name of tensor ", i));
    const std::string who = str("tensor '", t.name, "'");
    const uint32_t dims = take<uint32_t>(str("the dimension count of ", who));
    if (dims == 0 || dims > 4) bad(str(who, " has ", dims, " dimensions, expected 1 to 4"));
    uint64_t elements = 1;
    for (uint32_t d = 0; d < dims; ++d) {
      const uint64_t n = count(str("the dimensions of ", who));
      if (n == 0) bad(str(who, ": dimension ", d, " is 0"));
      if (__builtin_mul_overflow(elements, n, &elements) || elements > static_cast<uint64_t>(INT64_MAX) / 8)
        bad(str(who, ": the product of its dimensions overflows"));
      t.shape.insert(t.shape.begin(), static_cast<int64_t>(n));
    }
    t.type = take<uint32_t>(str("the type of ", who));
    Pending p;
    p.offset = take<uint64_t>(str("the offset of ", who));
    const auto* format = format_of(t.type);
    if (!format) bad(str(who, " has the unknown type ", t.type));
    if (t.cols() % format->elements != 0)
      bad(str(who, ": rows of ", t.cols(), " values do not divide into ", format->name, " blocks of ",
              format->elements));
    if (__builtin_mul_overflow(elements / format->elements, static_cast<uint64_t>(format->bytes), &p.bytes))
      bad(str(who, ": its size overflows"));
    return p;
  }

  void run() {
    if (const std::string wrong = describe_wrong_file(bytes); !wrong.empty()) bad(str("this is ", wrong));
    if (bytes.size() < 4 || std::memcmp(bytes.data(), "GGUF", 4) != 0)
      bad("not a GGUF file: it does not start with 'GGUF'");
    at = 4;
    f.version_ = take<uint32_t>("the version");
    if (f.version_ != 0 && (f.version_ & 0xffffu) == 0)
      bad("a big-endian GGUF file; only little-endian files are read");
    if (f.version_ < 1 || f.version_ > 3) bad(str("GGUF version ", f.version_, ", expected 1, 2 or 3"));
    const uint64_t tensors = count("the number of tensors"), values = count("the number of metadata values");
    // The least that one can take: a name's length, dimension count, one dimension, type, offset; key length and type.
    if (tensors > left() / (count_bytes() * 2 + 16))
      bad(str("cut short or damaged: it says ", tensors, " tensors, ", left(), " bytes are left"));
    if (values > left() / (count_bytes() + 5))
      bad(str("cut short or damaged: it says ", values, " metadata values, ", left(), " bytes are left"));
    metadata(values);
    uint64_t alignment = 32;
    if (f.has("general.alignment")) {
      const int64_t a = f.integer("general.alignment");
      if (a < 1 || a > (1 << 20) || !std::has_single_bit(static_cast<uint64_t>(a)))
        bad(str("general.alignment is ", a, ", expected a power of two up to 1048576"));
      alignment = static_cast<uint64_t>(a);
    }
    f.tensors_.reserve(tensors);
    std::vector<Pending> pending;
    pending.reserve(tensors);
    for (uint64_t i = 0; i < tensors; ++i) {
      GgufTensor t;
      pending.push_back(tensor_info(t, i));
      if (!f.index_.emplace(t.name, f.tensors_.size()).second) bad(str("tensor '", t.name, "' stands twice"));
      f.tensors_.push_back(std::move(t));
    }
    f.header_bytes_ = at;
    const uint64_t data = (at + alignment - 1) / alignment * alignment;
    place(pending, data, alignment);
  }

  void place(const std::vector<Pending>& pending, uint64_t data, uint64_t alignment) {
    if (pending.empty()) return;  // a vocabulary only: there may be no data and no padding
    if (data > bytes.size()) bad(str("cut short at byte ", bytes.size(), ": the tensor data start at byte ", data));
    const uint64_t have = bytes.size() - data;
    std::vector<size_t> order(pending.size());
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
      auto& t = f.tensors_[i];
      const auto& p = pending[i];
      if (p.offset % alignment != 0)
        bad(str("tensor '", t.name, "': offset ", p.offset, " is not a multiple of ", alignment));
      if (p.offset > have || p.bytes > have - p.offset)
        bad(str("cut short: tensor '", t.name, "' needs ", p.bytes, " bytes at ", p.offset, " of the data, ", have,
                " are there"));
      t.data = bytes.data() + data + p.offset;
      t.bytes = p.bytes;
    }
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return pending[a].offset < pending[b].offset; });
    for (size_t i = 1; i < order.size(); ++i)
      if (pending[order[i - 1]].offset + pending[order[i - 1]].bytes > pending[order[i]].offset)
        bad(str("tensors '", f.tensors_[order[i - 1]].name, "' and '", f.tensors_[order[i]].name, "' overlap"));
  }
};

std::shared_ptr<const GgufFile> GgufFile::open(const std::filesystem::path& path) {
  std::shared_ptr<GgufFile> f(new GgufFile);
  f->file_ = MappedFile::open(path);
  Parser{*f, f->file_->bytes()}.run();
  return f;
}

std::string GgufFile::fingerprint() const {
  return str(file_->identity(), " header=", std::hex, hash_bytes(file_->bytes().first(header_bytes_)));
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> out;
  for (const auto& [key, v] : values_) out.push_back(key);
  return out;
}

const GgufFile::Value* GgufFile::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

const GgufFile::Value& GgufFile::get(std::string_view key) const {
  if (const auto* v = find(key)) return *v;
  throw Error(ErrorCode::model, str(path().string(), ": the metadata key '", key, "' is missing"));
}

void GgufFile::wrong_type(std::string_view key, const Value& v, const char* expected) const {
  const std::string found = v.type == GgufType::array ? str("an array of ", type_word(v.element)) : type_word(v.type);
  throw Error(ErrorCode::model,
              str(path().string(), ": the metadata key '", key, "' is ", found, ", expected ", expected));
}

std::string_view GgufFile::read_text(const std::byte* at, size_t* used) const {
  const size_t head = version_ == 1 ? 4 : 8;
  const uint64_t n = version_ == 1 ? load<uint32_t>(at) : load<uint64_t>(at);
  *used = head + n;
  return {reinterpret_cast<const char*>(at + head), n};
}

namespace {

std::optional<int64_t> load_integer(GgufType t, const std::byte* p) {
  switch (t) {
    case GgufType::u8:
      return load<uint8_t>(p);
    case GgufType::i8:
      return load<int8_t>(p);
    case GgufType::u16:
      return load<uint16_t>(p);
    case GgufType::i16:
      return load<int16_t>(p);
    case GgufType::u32:
      return load<uint32_t>(p);
    case GgufType::i32:
      return load<int32_t>(p);
    case GgufType::i64:
      return load<int64_t>(p);
    case GgufType::u64: {
      const uint64_t v = load<uint64_t>(p);
      if (v > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(v);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> load_float(GgufType t, const std::byte* p) {
  if (t == GgufType::f32) return load<float>(p);
  if (t == GgufType::f64) return load<double>(p);
  return std::nullopt;
}

}  // namespace

std::optional<std::string_view> GgufFile::find_text(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return std::nullopt;
  if (v->type != GgufType::string) wrong_type(key, *v, "a string");
  size_t used;
  return read_text(v->at, &used);
}

std::optional<int64_t> GgufFile::find_integer(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return std::nullopt;
  const auto n = v->type == GgufType::array ? std::nullopt : load_integer(v->type, v->at);
  if (!n) wrong_type(key, *v, "an integer below 2^63");
  return n;
}

std::optional<double> GgufFile::find_number(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return std::nullopt;
  if (v->type != GgufType::array) {
    if (const auto d = load_float(v->type, v->at)) return d;
    if (const auto n = load_integer(v->type, v->at)) return static_cast<double>(*n);
  }
  wrong_type(key, *v, "a number");
}

std::optional<bool> GgufFile::find_boolean(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return std::nullopt;
  if (v->type != GgufType::boolean) wrong_type(key, *v, "a bool");
  return load<uint8_t>(v->at) != 0;
}

std::string_view GgufFile::text(std::string_view key) const {
  return get(key), *find_text(key);
}
int64_t GgufFile::integer(std::string_view key) const {
  return get(key), *find_integer(key);
}
double GgufFile::number(std::string_view key) const {
  return get(key), *find_number(key);
}
bool GgufFile::boolean(std::string_view key) const {
  return get(key), *find_boolean(key);
}

bool GgufFile::is_array(std::string_view key) const {
  const Value* v = find(key);
  return v && v->type == GgufType::array;
}

std::vector<std::string_view> GgufFile::text_array(std::string_view key) const {
  const Value& v = get(key);
  if (v.type != GgufType::array || v.element != GgufType::string) wrong_type(key, v, "an array of strings");
  std::vector<std::string_view> out;
  out.reserve(v.count);
  const std::byte* at = v.at;
  for (uint64_t i = 0; i < v.count; ++i) {
    size_t used;
    out.push_back(read_text(at, &used));
    at += used;
  }
  return out;
}

std::vector<int64_t> GgufFile::integer_array(std::string_view key) const {
  const Value& v = get(key);
  const GgufType t = v.element == GgufType::boolean ? GgufType::u8 : v.element;
  const size_t size = fixed_size(t);
  if (v.type != GgufType::array || size == 0 || t == GgufType::f32 || t == GgufType::f64)
    wrong_type(key, v, "an array of integers");
  std::vector<int64_t> out;
  out.reserve(v.count);
  for (uint64_t i = 0; i < v.count; ++i) {
    const auto n = load_integer(t, v.at + i * size);
    if (!n) wrong_type(key, v, "an array of integers below 2^63");
    out.push_back(*n);
  }
  return out;
}

std::vector<float> GgufFile::float_array(std::string_view key) const {
  const Value& v = get(key);
  if (v.type != GgufType::array || (v.element != GgufType::f32 && v.element != GgufType::f64))
    wrong_type(key, v, "an array of floats");
  const size_t size = fixed_size(v.element);
  std::vector<float> out;
  out.reserve(v.count);
  for (uint64_t i = 0; i < v.count; ++i) out.push_back(static_cast<float>(*load_float(v.element, v.at + i * size)));
  return out;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace bantam
