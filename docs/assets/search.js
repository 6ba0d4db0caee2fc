// Who pastes the message of a program wants the place that has its words. Names in quotes, paths and numbers are those of
// one run; ":" and the like would be operators of the search; words that every text has are not in its index. A sentence
// without such signs keeps its longer words, any of which may be found: the short ones are the beginnings of many others.
const common = new Set(`able about across after almost also among because been cannot could dear does either else ever every from have however
  into just least like likely might most must neither often only other rather said says should since some than that their them
  then there these they this wants were what when where which while whom will with would your`.split(/\s+/));
addEventListener(
  "input",
  ({ target }) => {
    if (!target.matches?.(".md-search__input") || target.value.length < 24) return;
    const words = target.value
      .replace(/(?<!\w)'[^']*'|\S*\/\S*|\S*\w\.[A-Za-z_]\S*/g, " ")
      .match(/(?<!\w)[A-Za-z_]{4,}(?!\w)/g)
      ?.filter((word) => !common.has(word.toLowerCase()));
    const found = [...new Set(words)].join(" ");
    if (found) target.value = /[:[\](){}'^*]/.test(target.value) ? `"${found}"` : found;
  },
  true,
);
