#include "server/rpc/list/list_query.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/rpc/convert/fixed_bytes.h"
#include "server/rpc/list/page_token.h"

namespace octavo::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;

std::string TextOf(const Message& request, const char* field) {
  return request.GetReflection()->GetString(request,
                                            request.GetDescriptor()->FindFieldByName(field));
}

/// The name of the request and all of its fields but those of the page.
std::string AskedBy(const Message& request) {
  const Descriptor& about = *request.GetDescriptor();
  std::unique_ptr<Message> asked(request.New());
  asked->CopyFrom(request);
  for (const char* field : {"page_size", "page_token"})
    asked->GetReflection()->ClearField(asked.get(), about.FindFieldByName(field));
  std::string bytes = about.full_name();
  bytes += '\0';
  return bytes + FixedBytes(*asked);
}

/// The rank of a key of KeyOfRank.
int64_t RankOf(const std::string& key) {
  uint64_t rank = 0;
  for (const char c : key) rank = (rank << 8) | static_cast<unsigned char>(c);
  return static_cast<int64_t>(rank ^ (uint64_t{1} << 63));
}

}  // namespace

absl::StatusOr<ListQuery> ListQuery::Parse(const Message& request, const Descriptor& row,
                                           absl::string_view key, absl::string_view usual_order) {
  const int32_t page_size = request.GetReflection()->GetInt32(
      request, request.GetDescriptor()->FindFieldByName("page_size"));
  if (page_size < 0 || page_size > kMostRows)
    return InvalidField("page_size", absl::StrCat("is ", page_size, "; allowed 0 (", kUsualRows,
                                                  ") to ", kMostRows));
  ListQuery query;
  if (page_size > 0) query.page_size_ = static_cast<size_t>(page_size);
  OCTAVO_ASSIGN_OR_RETURN(query.filter_, Filter::Parse(row, TextOf(request, "filter")));
  std::string order = TextOf(request, "order_by");
  if (order.empty()) order = std::string(usual_order);
  if (!order.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(query.order_, Order::Parse(row, order, key));
  }
  query.asked_ = AskedBy(request);
  const std::string token = TextOf(request, "page_token");
  if (token.empty()) return query;
  OCTAVO_ASSIGN_OR_RETURN(std::string after, ReadPageToken(query.asked_, token));
  if (query.order_.has_value()) {
    query.after_key_ = std::move(after);
  } else {
    query.after_rank_ = RankOf(after);
  }
  return query;
}

std::string ListQuery::TokenAfter(const std::string& key) const {
  return MakePageToken(asked_, key);
}

}  // namespace octavo::rpc
