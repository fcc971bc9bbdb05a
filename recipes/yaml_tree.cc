// SPDX-License-Identifier: Apache-2.0
#include "yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <unordered_map>

#include "../finetune/text/utf8.h"
#include "../kernels/error.h"

namespace bantam {
namespace {

struct Stop {
  YamlProblem problem;
};

[[noreturn]] void stop(int line, int column, std::string message) {
  throw Stop{YamlProblem{line, column, std::move(message)}};
}

size_t count_nodes(const YamlNode& node) {
  size_t n = 1;
  for (const YamlNode& item : node.items) n += count_nodes(item);
  for (const auto& [key, value] : node.entries) n += 1 + count_nodes(value);
  return n;
}

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::vector<YamlProblem>& problems) : problems_(problems) {}
  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) stop(mark.line + 1, mark.column + 1, "found a second document, expected one recipe a file");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { leaf(node_at(mark), anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    YamlNode node = node_at(mark);
    node.kind = YamlNode::Kind::scalar;
    node.text = value;
    leaf(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) stop(mark.line + 1, mark.column + 1, "found an alias of the value it stands in");
    // An alias is copied, so it is paid for in full: nested aliases cannot grow past the node limit.
    nodes_ += count_nodes(found->second);
    check_nodes(mark);
    YamlNode copy = found->second;
    copy.line = mark.line + 1;
    copy.column = mark.column + 1;
    place(std::move(copy));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::sequence);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    YamlNode node, key;
    YAML::anchor_t anchor = 0;
    bool has_key = false;
    std::map<std::string, std::pair<int, int>> seen;
  };

  YamlNode node_at(const YAML::Mark& mark) {
    ++nodes_;
    check_nodes(mark);
    YamlNode node;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }
  void check_nodes(const YAML::Mark& mark) const {
    if (nodes_ > kMaxYamlNodes) {
      stop(mark.line + 1, mark.column + 1, str("found more than ", kMaxYamlNodes, " values (aliases counted in full)"));
    }
  }
  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!" || tag == "tag:yaml.org,2002:str") return;
    stop(mark.line + 1, mark.column + 1, str("found the tag ", tag, ", expected none: types come from the key"));
  }
  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    check_tag(mark, tag);
    if (static_cast<int>(stack_.size()) >= kMaxYamlDepth) {
      stop(mark.line + 1, mark.column + 1, str("found values nested more than ", kMaxYamlDepth, " deep"));
    }
    if (!stack_.empty() && stack_.back().node.kind == YamlNode::Kind::map && !stack_.back().has_key) {
      stop(mark.line + 1, mark.column + 1,
           "found a list or mapping as a key, expected a name; is a bracket not closed?");
    }
    Frame frame;
    frame.node = node_at(mark);
    frame.node.kind = kind;
    frame.anchor = anchor;
    stack_.push_back(std::move(frame));
  }
  void close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    if (frame.anchor != 0) anchors_[frame.anchor] = frame.node;
    place(std::move(frame.node));
  }
  void leaf(YamlNode node, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = node;
    place(std::move(node));
  }
  void place(YamlNode node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& top = stack_.back();
    if (top.node.kind == YamlNode::Kind::sequence) {
      top.node.items.push_back(std::move(node));
    } else if (!top.has_key) {
      if (node.kind != YamlNode::Kind::scalar) stop(node.line, node.column, "found no name as a key, expected a name");
      if (node.text == "<<") stop(node.line, node.column, "found a merge key (<<), expected the keys written out");
      top.key = std::move(node);
      top.has_key = true;
    } else {
      top.has_key = false;
      // An empty value is marked where the next token stands; its key's place serves people better.
      if (node.kind == YamlNode::Kind::null) node.line = top.key.line, node.column = top.key.column;
      const auto [it, fresh] = top.seen.try_emplace(top.key.text, top.key.line, top.key.column);
      if (fresh) {
        top.node.entries.emplace_back(std::move(top.key), std::move(node));
      } else {
        problems_.push_back(
            {top.key.line, top.key.column,
             str(top.key.text, ": found the key a second time, the first is on line ", it->second.first)});
      }
    }
  }

  std::vector<YamlProblem>& problems_;
  YamlNode root_;
  std::vector<Frame> stack_;
  std::unordered_map<YAML::anchor_t, YamlNode> anchors_;
  size_t nodes_ = 0;
  int documents_ = 0;
};

/// yaml-cpp takes some control characters for the end of the file and mends broken UTF-8; both are refused here.
void check_characters(std::string_view text) {
  int line = 1, column = 1;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t n = utf8_sequence(text.substr(i));
    if (n == 0) stop(line, column, str("found the byte ", static_cast<int>(c), ", expected UTF-8 text"));
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
      stop(line, column, str("found the control character ", static_cast<int>(c), ", expected text"));
    }
    if (c == '\n') {
      ++line, column = 1;
    } else {
      ++column;
    }
    i += n;
  }
}

}  // namespace

YamlNode YamlNode::scalar(std::string text) {
  YamlNode node;
  node.kind = Kind::scalar;
  node.text = std::move(text);
  return node;
}

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.text == key) return &value;
  }
  return nullptr;
}

YamlNode parse_yaml(std::string_view text, std::vector<YamlProblem>& problems) {
  try {
    if (text.size() > kMaxYamlBytes) {
      stop(1, 1, str("found ", text.size(), " bytes, expected a recipe of at most ", kMaxYamlBytes));
    }
    if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
    check_characters(text);
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    TreeBuilder builder(problems);
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.take();
  } catch (const Stop& e) {
    problems.push_back(e.problem);
  } catch (const YAML::Exception& e) {
    problems.push_back({std::max(1, e.mark.line + 1), std::max(1, e.mark.column + 1), str("not valid YAML: ", e.msg)});
  }
  return {};
}

}  // namespace bantam
