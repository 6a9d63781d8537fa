"""Pages that are hard to parse, with the elements that have an id: id, name, and the text of a script or style."""

PAGES: dict[str, list[list[str]]] = {
    "<svg><style><img id=a></style></svg><style id=b><img id=c></style>": [
        ["a", "img", ""],
        ["b", "style", "<img id=c>"],
    ],
    "<svg><style><g id=a></style><script><use id=b></script></svg>": [["a", "svg:g", ""], ["b", "svg:use", ""]],
    "<svg><script id=a /><style id=b /><title><image id=c></title><image id=d></svg>": [
        ["a", "svg:script", ""],
        ["b", "svg:style", ""],
        ["c", "img", ""],
        ["d", "svg:image", ""],
    ],
    "<svg><foreignObject><script id=a><g></script><svg><iframe id=b><g id=c></svg></foreignObject><use id=d></svg>": [
        ["a", "script", "<g>"],
        ["b", "svg:iframe", ""],
        ["c", "svg:g", ""],
        ["d", "svg:use", ""],
    ],
    "<div><svg><g></div><style id=a><p id=b></style>": [["a", "style", "<p id=b>"]],
    "<svg><font><use id=a></font><font color=x><use id=b>": [["a", "svg:use", ""], ["b", "use", ""]],
    "<svg><desc></span><use id=a></use><div></svg><use id=b></use></div></desc><use id=c>": [
        ["a", "use", ""],
        ["b", "use", ""],
        ["c", "svg:use", ""],
    ],
    "<math><mi><use id=a></use></mi><mi><mglyph id=b></mi><annotation-xml encoding=text/html><use id=c>": [
        ["a", "use", ""],
        ["b", "math:mglyph", ""],
        ["c", "use", ""],
    ],
    "<math><annotation-xml encoding=text/html><style id=a><p></style></math>": [["a", "style", "<p>"]],
    "<script id=a>x</script y='>'><img id=b>": [["a", "script", "x"], ["b", "img", ""]],
    "<script id=a />x<img id=b></script\n/><img id=c>": [["a", "script", "x<img id=b>"], ["c", "img", ""]],
    "<script id=a></scripts><img id=b></script><img id=c>": [["a", "script", "</scripts><img id=b>"], ["c", "img", ""]],
    "<script id=a><!--<script></script><img id=b>--></script><img id=c>": [
        ["a", "script", "<!--<script></script><img id=b>-->"],
        ["c", "img", ""],
    ],
    "<script id=a><!--<script>--></script><img id=b>": [["a", "script", "<!--<script>-->"], ["b", "img", ""]],
    "<script id=a><!--><script></script><img id=b>": [["a", "script", "<!--><script>"], ["b", "img", ""]],
    "<iframe id=a /><img id=b></iframe><img id=c>": [["a", "iframe", ""], ["c", "img", ""]],
    "<style id=a />p{}</style/><img id=b>": [["a", "style", "p{}"], ["b", "img", ""]],
    "<p id=a><plaintext id=b><img id=c></plaintext>": [["a", "p", ""], ["b", "plaintext", ""]],
    '<img id=a title=\'<img id=b>\' alt="><img id=c>" ="x"><img id=d y=>': [["a", "img", ""], ["d", "img", ""]],
    "<img id=a <img id=b><img id=c//><img id=d": [["a", "img", ""], ["c//", "img", ""]],
    "</ ><img id=a></p title='><img id=b>'><? ><img id=c><!x><img id=d><3 <img id=e>": [
        ["a", "img", ""],
        ["c", "img", ""],
        ["d", "img", ""],
        ["e", "img", ""],
    ],
    "<image id=a>": [["a", "img", ""]],
    "<script id=a></\u017fcript></SCRIPT><style ID=b></\u017ftyle></style>": [
        ["a", "script", "</\u017fcript>"],
        ["b", "style", "</\u017ftyle>"],
    ],
    "<lin\u212a id=a>": [["a", "lin\u212a", ""]],
}
