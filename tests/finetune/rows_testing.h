// SPDX-License-Identifier: Apache-2.0
// What the tests of row readers share: bytes from memory in small pieces, archives, and all rows of a file at once.
#pragma once
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "finetune/data/rows/row_reader_parts.h"
#include "quant/quant_testing.h"

namespace bantam::testing {

/// Gives at most `piece` bytes at a time.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string bytes, size_t piece = SIZE_MAX) : bytes_(std::move(bytes)), piece_(piece) {}
  size_t read(char* to, size_t n) override {
    n = std::min({n, piece_, bytes_.size() - at_});
    std::memcpy(to, bytes_.data() + at_, n);
    at_ += n;
    return n;
  }

 private:
  std::string bytes_;
  size_t piece_, at_ = 0;
};

inline std::string gzipped(const std::string& text, int level = 6) {
  z_stream z{};
  if (deflateInit2(&z, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return {};
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

inline std::string zstded(const std::string& text, int level = 3) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context.get(), out.data(), out.size(), text.data(), text.size()));
  return out;
}

struct ReadRows {
  std::vector<int64_t> lines;
  std::vector<nlohmann::ordered_json> rows;
  RowNotes notes;
  std::string format, error;  ///< message | hint; empty: none
  bool operator==(const ReadRows& o) const {
    // As text: == of ordered objects does not look at the order of keys in every version.
    const auto text = [](const ReadRows& r) {
      std::string s;
      for (const auto& row : r.rows) s += row.dump() + "\n";
      return s;
    };
    return lines == o.lines && error == o.error && notes.carriage_returns == o.notes.carriage_returns &&
           text(*this) == text(o);
  }
};

/// Everything from a file of that name, up to its error.
inline ReadRows read_rows(const std::string& name, const std::string& bytes, const ReaderOptions& options = {},
                          size_t window = RowInput::kBuffer, size_t piece = SIZE_MAX) {
  ReadRows out;
  try {
    const auto reader = open_rows(std::make_unique<MemorySource>(bytes, piece), name, options, window);
    out.format = reader->format();
    RawRow row;
    while (reader->next(row)) {
      out.rows.push_back(reader->parse(row, out.notes));
      out.lines.push_back(row.line);
    }
  } catch (const Error& e) {
    out.error = str(e.code() == ErrorCode::data ? "" : "not an error of the data: ", e.what(), " | ", e.hint());
  }
  return out;
}

}  // namespace bantam::testing
