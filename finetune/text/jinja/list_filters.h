// SPDX-License-Identifier: Apache-2.0
// The filters on lists and dicts.
#pragma once
#include "object.h"

namespace bantam {

JinjaValue jinja_filter_join(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_list(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_items(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_map(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_select(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_reject(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_selectattr(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_rejectattr(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_dictsort(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_sort(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_unique(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_first(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);
JinjaValue jinja_filter_last(const JinjaValue& v, JinjaArguments& given, JinjaWork& work);

}  // namespace bantam
