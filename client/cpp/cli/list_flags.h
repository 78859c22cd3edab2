#pragma once

#include <memory>
#include <string>

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

/// The flags of every command that lists, and its calls: a list comes in pages.
class ListFlags {
 public:
  /// `filter` and `order`: examples for the help.
  void AddTo(CLI::App* command, const std::string& filter,
             const std::string& order = "create_time desc, name") const {
    command->add_option("--filter", *filter_, "only those that match, such as '" + filter + "'");
    command->add_option("--order-by", *order_by_, "another order, such as '" + order + "'");
  }

  /// Calls `call(context, request, &answer)` for each page of the list, and `print(answer)` with
  /// each answer. `also`: a filter of the command's own; empty = none. Whether all pages have come.
  template <class Answer, class Request, class Call, class Print>
  bool EachPage(Session& session, Request request, const std::string& also, Call call,
                Print print) const {
    request.set_filter(also.empty()       ? *filter_
                       : filter_->empty() ? also
                                          : "(" + also + ") AND (" + *filter_ + ")");
    request.set_order_by(*order_by_);
    do {
      Answer answer;
      if (!Check(session, call(session.Context().get(), request, &answer))) return false;
      print(answer);
      request.set_page_token(answer.next_page_token());
    } while (!request.page_token().empty());
    return true;
  }

 private:
  // Shared by the copies that callbacks keep.
  std::shared_ptr<std::string> filter_ = std::make_shared<std::string>();
  std::shared_ptr<std::string> order_by_ = std::make_shared<std::string>();
};

}  // namespace octavo::cli
