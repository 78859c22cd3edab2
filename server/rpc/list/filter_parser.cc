#include "server/rpc/list/filter_parser.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::rpc {
namespace {

using google::protobuf::Descriptor;

/// A value as the client wrote it in the filter.
struct Literal {
  size_t at = 0;
  std::string text;           // without its quotes
  std::vector<bool> escaped;  // by character of `text`
  bool IsStar(size_t i) const { return text[i] == '*' && !escaped[i]; }
};

/// The operators that a field knows.
absl::string_view OperatorsOf(const FieldPath& path) {
  if (path.is_map()) return ":<key> :*";
  if (path.is_repeated()) return ":<value> :*";
  if (path.kind() == FieldKind::kOther) return ":*";
  return IsOrdered(path.kind()) ? "= != < <= > >= :*" : "= != :*";
}
bool Knows(const FieldPath& path, FilterOperator op) {
  if (op == FilterOperator::kHas || path.is_map() || path.is_repeated() ||
      path.kind() == FieldKind::kOther)
    return false;
  return IsOrdered(path.kind()) || op == FilterOperator::kEqual || op == FilterOperator::kNotEqual;
}

bool IsPathCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
}

class FilterParser {
 public:
  FilterParser(const Descriptor& row, absl::string_view text) : row_(row), text_(text) {}

  absl::StatusOr<std::optional<FilterNode>> Parse() {
    SkipSpace();
    if (AtEnd()) return std::optional<FilterNode>();
    OCTAVO_ASSIGN_OR_RETURN(FilterNode root, Expression(0));
    if (!AtEnd()) return Wrong(at_, "unmatched ')'; allowed AND, OR or the end of the filter");
    return std::optional(std::move(root));
  }

 private:
  absl::Status Wrong(size_t at, absl::string_view what) const {
    return InvalidField("filter", absl::StrCat("at character ", at + 1, ": ", what));
  }
  bool AtEnd() const { return at_ == text_.size(); }
  void SkipSpace() {
    while (!AtEnd() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool Take(absl::string_view token) {
    if (!absl::StartsWith(text_.substr(at_), token)) return false;
    at_ += token.size();
    SkipSpace();
    return true;
  }
  /// A keyword is a whole word.
  bool AtWord(absl::string_view word) const {
    const absl::string_view rest = text_.substr(at_);
    return absl::StartsWith(rest, word) &&
           (rest.size() == word.size() || !IsPathCharacter(rest[word.size()]));
  }
  bool TakeWord(absl::string_view word) { return AtWord(word) && Take(word); }

  /// The parts side by side; one alone is itself.
  static FilterNode Joined(FilterNode::Kind kind, std::vector<FilterNode> parts) {
    if (parts.size() == 1) return std::move(parts.front());
    return {.kind = kind, .parts = std::move(parts), .test = nullptr};
  }

  absl::StatusOr<FilterNode> Expression(int depth) {
    std::vector<FilterNode> parts;
    do {
      OCTAVO_ASSIGN_OR_RETURN(FilterNode part, Sequence(depth));
      parts.push_back(std::move(part));
    } while (TakeWord("AND"));
    return Joined(FilterNode::Kind::kAll, std::move(parts));
  }

  absl::StatusOr<FilterNode> Sequence(int depth) {
    std::vector<FilterNode> parts;
    do {
      OCTAVO_ASSIGN_OR_RETURN(FilterNode part, Factor(depth));
      parts.push_back(std::move(part));
    } while (!AtEnd() && text_[at_] != ')' && !AtWord("AND"));
    return Joined(FilterNode::Kind::kAll, std::move(parts));
  }

  absl::StatusOr<FilterNode> Factor(int depth) {
    std::vector<FilterNode> parts;
    do {
      OCTAVO_ASSIGN_OR_RETURN(FilterNode part, Term(depth));
      parts.push_back(std::move(part));
    } while (TakeWord("OR"));
    return Joined(FilterNode::Kind::kAny, std::move(parts));
  }

  absl::StatusOr<FilterNode> Term(int depth) {
    const bool negated = TakeWord("NOT") || Take("-");
    OCTAVO_ASSIGN_OR_RETURN(FilterNode term, Simple(depth));
    if (!negated) return term;
    FilterNode node{.kind = FilterNode::Kind::kNot, .parts = {}, .test = nullptr};
    node.parts.push_back(std::move(term));
    return node;
  }

  absl::StatusOr<FilterNode> Simple(int depth) {
    const size_t open = at_;
    if (!Take("(")) return Test();
    if (depth == Filter::kMostDepth)
      return Wrong(open, absl::StrCat("the filter nests parentheses more than ", Filter::kMostDepth,
                                      " deep; allowed ", Filter::kMostDepth));
    OCTAVO_ASSIGN_OR_RETURN(FilterNode inner, Expression(depth + 1));
    if (!Take(")")) return Wrong(open, "unmatched '('; allowed pairs of '(' and ')'");
    return inner;
  }

  absl::StatusOr<FilterNode> Test() {
    const size_t begin = at_;
    if (++tests_ > Filter::kMostTests)
      return Wrong(begin, absl::StrCat("the filter has more than ", Filter::kMostTests,
                                       " tests; allowed ", Filter::kMostTests));
    OCTAVO_ASSIGN_OR_RETURN(const std::string name, Path());
    auto path = FieldPath::Parse(row_, name);
    if (!path.ok()) return Wrong(begin, path.status().message());
    FilterTest test{.path = *std::move(path)};
    OCTAVO_ASSIGN_OR_RETURN(test.op, Operator(test.path));
    OCTAVO_ASSIGN_OR_RETURN(const Literal literal, Value(name));
    OCTAVO_RETURN_IF_ERROR(Bind(literal, begin, &test));
    return FilterNode{.kind = FilterNode::Kind::kTest,
                      .parts = {},
                      .test = std::make_shared<const FilterTest>(std::move(test))};
  }

  /// A name with dots; parts of it may be quoted (keys of maps).
  absl::StatusOr<std::string> Path() {
    const size_t begin = at_;
    std::string path;
    while (!AtEnd() && (IsPathCharacter(text_[at_]) ||
                        (!path.empty() && path.back() == '.' && IsQuote(text_[at_])))) {
      if (!IsQuote(text_[at_])) {
        path += text_[at_++];
        continue;
      }
      Literal key;
      OCTAVO_RETURN_IF_ERROR(Quoted(&key));
      path += key.text;
    }
    if (!AtEnd() && path.empty() && (text_[at_] == '&' || text_[at_] == '|'))
      return Wrong(
          begin, absl::StrCat("'", text_.substr(at_, 1),
                              "' is no operator between tests; allowed AND, OR, NOT in capitals"));
    if (path.empty())
      return Wrong(
          begin,
          AtEnd() ? absl::string_view(
                        "the filter ends where a test is missing; allowed <field> = <value>")
                  : absl::string_view(
                        "a test must begin with the name of a field; allowed <field> = <value>"));
    SkipSpace();
    return path;
  }

  absl::StatusOr<FilterOperator> Operator(const FieldPath& path) {
    if (text_.substr(at_, 2) == "==")
      return Wrong(at_, absl::StrCat("'==' is no operator; allowed ", OperatorsOf(path)));
    for (const auto& [token, op] :
         {std::pair{"!=", FilterOperator::kNotEqual}, std::pair{"<=", FilterOperator::kLessOrEqual},
          std::pair{">=", FilterOperator::kGreaterOrEqual}, std::pair{"=", FilterOperator::kEqual},
          std::pair{"<", FilterOperator::kLess}, std::pair{">", FilterOperator::kGreater},
          std::pair{":", FilterOperator::kHas}}) {
      if (Take(token)) return op;
    }
    return Wrong(at_, absl::StrCat("'", Shortened(path.text()),
                                   "' has no operator behind it; allowed ", OperatorsOf(path)));
  }

  static bool IsQuote(char c) { return c == '"' || c == '\''; }

  absl::StatusOr<Literal> Value(const std::string& name) {
    Literal literal;
    literal.at = at_;
    if (AtEnd() || text_[at_] == ')' || text_[at_] == '(')
      return Wrong(
          at_, absl::StrCat("'", Shortened(name),
                            "' has no value behind its operator; allowed a word or \"a text\""));
    if (IsQuote(text_[at_])) {
      OCTAVO_RETURN_IF_ERROR(Quoted(&literal));
    } else {
      for (; !AtEnd() && !absl::ascii_isspace(static_cast<unsigned char>(text_[at_])) &&
             text_[at_] != '(' && text_[at_] != ')' && !IsQuote(text_[at_]);
           ++at_) {
        literal.text += text_[at_];
        literal.escaped.push_back(false);
      }
    }
    SkipSpace();
    return literal;
  }

  /// At a quote. Reads up to the next one.
  absl::Status Quoted(Literal* literal) {
    const size_t begin = at_;
    const char quote = text_[at_++];
    for (; !AtEnd() && text_[at_] != quote; ++at_) {
      char c = text_[at_];
      const bool escape = c == '\\';
      if (escape) {
        if (++at_ == text_.size()) break;
        c = text_[at_];
        if (c == 'n') {
          c = '\n';
        } else if (c == 't') {
          c = '\t';
        } else if (c != '\\' && c != '*' && !IsQuote(c)) {
          return Wrong(at_ - 1, "unknown escape; allowed \\\" \\' \\\\ \\* \\n \\t");
        }
      }
      literal->text += c;
      literal->escaped.push_back(escape);
    }
    if (AtEnd()) return Wrong(begin, "unmatched quote; allowed a text between two quotes");
    ++at_;
    return absl::OkStatus();
  }

  /// Checks that the operator fits the field, and reads the value as the field's kind.
  absl::Status Bind(const Literal& literal, size_t begin, FilterTest* test) const {
    const FieldPath& path = test->path;
    const std::string& text = literal.text;
    if (test->op == FilterOperator::kHas) {
      test->set = text.size() == 1 && literal.IsStar(0);
      test->key = path.is_map() ? text : "";
      if (test->set || path.is_map()) return absl::OkStatus();
    }
    const bool element =
        test->op == FilterOperator::kHas && path.is_repeated() && path.kind() != FieldKind::kOther;
    if (!element && !Knows(path, test->op))
      return Wrong(begin, absl::StrCat("'", path.text(), "' does not have this operator; allowed ",
                                       OperatorsOf(path)));
    if (path.kind() == FieldKind::kText) return BindText(literal, test);
    auto value = ParseValue(path.field(), text);
    if (!value.ok())
      return Wrong(literal.at,
                   absl::StrCat("the value of '", path.text(), "' is ", value.status().message()));
    test->value = *std::move(value);
    return absl::OkStatus();
  }

  absl::Status BindText(const Literal& literal, FilterTest* test) const {
    size_t begin = 0, end = literal.text.size();
    test->any_before = begin < end && literal.IsStar(begin);
    begin += test->any_before;
    test->any_after = begin < end && literal.IsStar(end - 1);
    end -= test->any_after;
    for (size_t i = begin; i < end; ++i) {
      if (literal.IsStar(i))
        return Wrong(
            literal.at,
            absl::StrCat("'", Shortened(literal.text),
                         "' has a * in the middle; allowed a * at the beginning or the end, "
                         "and \\* for the character itself"));
    }
    test->value = literal.text.substr(begin, end - begin);
    return absl::OkStatus();
  }

  const Descriptor& row_;
  const absl::string_view text_;
  size_t at_ = 0;
  int tests_ = 0;
};

}  // namespace

absl::StatusOr<std::optional<FilterNode>> ParseFilter(const Descriptor& row,
                                                      absl::string_view text) {
  return FilterParser(row, text).Parse();
}

}  // namespace octavo::rpc
