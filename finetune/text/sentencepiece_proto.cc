// SPDX-License-Identifier: Apache-2.0
#include "sentencepiece_proto.h"

#include <cstring>

#include "../../kernels/error.h"

namespace bantam {
namespace {

enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
// ModelProto, its SentencePiece, TrainerSpec and NormalizerSpec.
enum Field : uint32_t {
  // clang-format off
  kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5,
  kPiece = 1, kScore = 2, kType = 3,
  kModelType = 3, kVocabSize = 4, kSpaceAsSuffix = 24, kByteFallback = 35, kUnkId = 40, kBosId = 41, kEosId = 42, kPadId = 43,
  kUnkPiece = 45, kBosPiece = 46, kEosPiece = 47,
  kName = 1, kCharsmap = 2, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4, kEscapeWhitespaces = 5
  // clang-format on
};
constexpr uint64_t kModelTypeBpe = 2;

void put_varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
  out.push_back(static_cast<char>(v));
}
void put_number(std::string& out, uint32_t field, int64_t v) {
  put_varint(out, field << 3 | kVarint);
  put_varint(out, static_cast<uint64_t>(v));
}
void put_bytes(std::string& out, uint32_t field, std::string_view v) {
  put_varint(out, field << 3 | kBytes);
  put_varint(out, v.size());
  out.append(v);
}
void put_float(std::string& out, uint32_t field, float v) {
  uint32_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  put_varint(out, field << 3 | kFixed32);
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

// Walks the fields of one message.
class Fields {
 public:
  Fields(std::string_view message, const std::string& where) : left_(message), where_(where) {}

  bool next() {
    if (left_.empty()) return false;
    const uint64_t key = varint();
    field = key >> 3;
    wire = static_cast<uint32_t>(key & 7);
    size_t size = 0;
    switch (wire) {
      case kVarint:
        number = varint();
        return true;
      case kBytes: {
        const uint64_t n = varint();
        if (n > left_.size()) fail();
        size = static_cast<size_t>(n);
        break;
      }
      case kFixed32:
      case kFixed64:
        size = wire == kFixed32 ? 4 : 8;
        if (size > left_.size()) fail();
        break;
      default:
        fail();
    }
    bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return true;
  }

  uint64_t field = 0, number = 0;
  uint32_t wire = 0;
  std::string_view bytes;

 private:
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::model, str(where_, ": not a SentencePiece model (damaged or cut off)"));
  }
  uint64_t varint() {
    uint64_t v = 0;
    for (uint32_t shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto b = static_cast<uint8_t>(left_[0]);
      left_.remove_prefix(1);
      v |= uint64_t{b & 0x7Fu} << shift;
      if (b < 0x80) return v;
    }
    fail();
  }

  std::string_view left_;
  const std::string& where_;
};

uint32_t u32_at(std::string_view s, size_t i) {
  uint32_t v = 0;
  for (size_t k = 4; k-- > 0;) v = v << 8 | static_cast<uint8_t>(s[4 * i + k]);
  return v;
}

// precompiled_charsmap: u32 size of a double-array trie (Darts), the trie, then NUL-ended replacements that its values
// point at. A unit: bit 31 marks a value, bit 8 a node with a value, bits 10..30 (shifted by bit 9) the offset.
void check_charsmap(std::string_view map, const std::string& where) {
  const auto require = [&](bool ok) {
    if (!ok)
      throw Error(ErrorCode::model, str(where, ": the normalisation table of the SentencePiece model is damaged"));
  };
  if (map.empty()) return;
  require(map.size() > 4);
  const uint32_t trie_bytes = u32_at(map, 0);
  require(trie_bytes % 4 == 0 && trie_bytes > 0 && trie_bytes < map.size() - 4);
  const std::string_view trie = map.substr(4, trie_bytes), texts = map.substr(4 + size_t{trie_bytes});
  require(texts.back() == '\0');
  const size_t units = trie_bytes / 4;
  for (size_t i = 0; i < units; ++i) {
    const uint32_t unit = u32_at(trie, i);
    if ((unit >> 31) != 0) continue;
    const uint64_t offset = uint64_t{unit >> 10} << ((unit & (1u << 9)) >> 6);
    const uint64_t base = i ^ offset;
    require((base | 0xFF) < units);
    if ((unit & (1u << 8)) != 0) require((u32_at(trie, static_cast<size_t>(base)) & 0x7FFFFFFFu) < texts.size());
  }
}

}  // namespace

std::string write_sentencepiece_model(const SentencePieceModel& model) {
  std::string out;
  for (const SentencePieceEntry& e : model.pieces) {
    std::string piece;
    put_bytes(piece, kPiece, e.piece);
    put_float(piece, kScore, e.score);
    put_number(piece, kType, e.type);
    put_bytes(out, kPieces, piece);
  }
  std::string trainer;
  put_number(trainer, kModelType, kModelTypeBpe);
  put_number(trainer, kVocabSize, static_cast<int64_t>(model.pieces.size()));
  put_number(trainer, kByteFallback, model.byte_fallback ? 1 : 0);
  put_number(trainer, kUnkId, model.unk);
  put_number(trainer, kBosId, model.bos);
  put_number(trainer, kEosId, model.eos);
  put_number(trainer, kPadId, -1);
  const auto name = [&](uint32_t field, int32_t id) {
    if (id >= 0) put_bytes(trainer, field, model.pieces[static_cast<size_t>(id)].piece);
  };
  name(kUnkPiece, model.unk);
  name(kBosPiece, model.bos);
  name(kEosPiece, model.eos);
  put_bytes(out, kTrainerSpec, trainer);
  std::string normalizer;
  put_bytes(normalizer, kName, "identity");
  put_number(normalizer, kAddDummyPrefix, model.add_dummy_prefix ? 1 : 0);
  put_number(normalizer, kRemoveExtraWhitespaces, model.remove_extra_whitespaces ? 1 : 0);
  put_number(normalizer, kEscapeWhitespaces, 1);
  put_bytes(out, kNormalizerSpec, normalizer);
  return out;
}

SentencePieceSettings check_sentencepiece_model(std::string_view bytes, const std::string& where) {
  SentencePieceSettings out;
  size_t pieces = 0;
  for (Fields model(bytes, where); model.next();) {
    if (model.wire != kBytes) continue;
    if (model.field == kPieces) {
      ++pieces;
      for (Fields piece(model.bytes, where); piece.next();) {
      }
    } else if (model.field == kTrainerSpec) {
      for (Fields spec(model.bytes, where); spec.next();) {
        if (spec.field == kSpaceAsSuffix && spec.wire == kVarint) out.space_as_suffix = spec.number != 0;
      }
    } else if (model.field == kNormalizerSpec || model.field == kDenormalizerSpec) {
      for (Fields spec(model.bytes, where); spec.next();) {
        if (spec.field == kCharsmap && spec.wire == kBytes) check_charsmap(spec.bytes, where);
        if (model.field != kNormalizerSpec || spec.wire != kVarint) continue;
        if (spec.field == kAddDummyPrefix) out.add_dummy_prefix = spec.number != 0;
        if (spec.field == kRemoveExtraWhitespaces) out.remove_extra_whitespaces = spec.number != 0;
      }
    }
  }
  if (pieces == 0) throw Error(ErrorCode::model, str(where, ": not a SentencePiece model: it has no pieces"));
  return out;
}

std::string without_dummy_prefix(std::string_view bytes) {
  std::string spec;
  put_number(spec, kAddDummyPrefix, 0);
  std::string out(bytes);
  put_bytes(out, kNormalizerSpec, spec);
  return out;
}

}  // namespace bantam
