"""The vocabulary of made-up prompts: common English words that usual tokenizers keep whole.

Prompts are text, not token ids, because random ids do not survive the way through text and back. Their exact length in
tokens does not come from here: it is learnt from the baseline's own count (`workload.fit_lengths`).
"""

from __future__ import annotations

_WORDS = """
    time year people way day man thing woman life child world school state family student group country problem hand part
    place case week company system program question work government number night point home water room mother area money
    story fact month lot right study book eye job word business issue side kind head house service friend father power hour
    game line end member law car city community name president team minute idea body information back parent face level
    office door health person art war history party result change morning reason research girl guy moment air teacher force
    education foot boy age policy music market sense nation plan college interest death experience effect use class control
    care field development role effort rate heart drug show leader light voice wife whole police mind price report decision
    son view relationship town road arm difference value building action season society tax director position player record
    paper space ground form event matter center couple site project activity star table need court oil situation cost
    industry figure street image phone data picture practice piece land product doctor wall patient worker news test movie
    north love support technology step baby computer type attention film tree source organization hair look window evidence
    south letter trade energy measure summer winter spring river mountain garden kitchen bridge island forest village
    music science language culture nature beauty truth freedom peace memory dream future present past open close begin follow
    turn start help talk move live believe hold bring happen write provide sit stand lose pay meet include continue set learn
    lead understand watch stop create speak read allow add spend grow walk win offer remember consider appear buy wait serve
    send expect build stay fall cut reach kill remain suggest raise pass sell require decide pull good new first last long
    great little own other old big high different small large next early young important few public bad same able
"""

VOCABULARY: tuple[str, ...] = tuple(_WORDS.split())
