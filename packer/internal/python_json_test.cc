#include "packer/internal/python_json.h"

#include "gtest/gtest.h"

namespace glyd {
namespace {

TEST(PythonJsonTest, Strings) {
  EXPECT_EQ(PythonString("a\"\\/\b\f\n\r\t\x01\x7f"), R"("a\"\\/\b\f\n\r\t\u0001\u007f")");
  EXPECT_EQ(PythonString("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), R"("\u00e9\u20ac\ud83d\ude00")");
  // Bytes that are not UTF-8, as Python has them of a command line: overlong, lone, a surrogate,
  // past U+10FFFF, cut.
  EXPECT_EQ(PythonString("\xff"), R"("\udcff")");
  EXPECT_EQ(PythonString("\xc0\xaf"), R"("\udcc0\udcaf")");
  EXPECT_EQ(PythonString("\xed\xa0\x80"), R"("\udced\udca0\udc80")");
  EXPECT_EQ(PythonString("\xf4\x90\x80\x80"), R"("\udcf4\udc90\udc80\udc80")");
  EXPECT_EQ(PythonString("\xe2\x82"), R"("\udce2\udc82")");
  EXPECT_EQ(CompactString("a\"\\/\n\x01\x7f\xc3\xa9"), "\"a\\\"\\\\/\\n\\u0001\x7f\xc3\xa9\"");
}

TEST(PythonJsonTest, Indents) {
  PythonJson json(2);
  json.BeginObject();
  json.Key("a");
  json.BeginList();
  json.Number(1);
  json.Bool(false);
  json.EndList();
  json.Key("b");
  json.BeginObject();
  json.EndObject();
  json.Key("c");
  json.BeginList();
  json.EndList();
  json.Key("d");
  json.Null();
  json.EndObject();
  EXPECT_EQ(json.Take(),
            "{\n  \"a\": [\n    1,\n    false\n  ],\n  \"b\": {},\n  \"c\": [],\n  \"d\": null\n}");
}

// What PythonString writes comes back, whatever the bytes; what no such writer makes does not.
TEST(PythonJsonTest, FromPythonString) {
  for (const std::string& s :
       {std::string(), std::string("a/b"), std::string("\"\\\b\f\n\r\t\x01\x7f", 9),
        std::string("\0", 1), std::string("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
        std::string("\xff\xc3 \xed\xa0\x80\xf0\x9f")})
    EXPECT_EQ(FromPythonString(PythonString(s)), s) << PythonString(s);
  EXPECT_EQ(FromPythonString(R"("\/\u00E9")"), "/\xc3\xa9");
  for (const char* bad :
       {"", "\"", "x", "\"a", R"("\x")", R"("\u12")", R"("\ud800")", R"("\ud800\u0041")",
        R"("\udc00")", R"("\udfff")", R"("\")", "\"\n\"", R"("a"b")", "12"})
    EXPECT_EQ(FromPythonString(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace glyd
