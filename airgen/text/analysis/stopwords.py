"""Stop words: in English the 33 of Lucene's EnglishAnalyzer, in other languages words that are surely function words.

The short lists have no word that can carry meaning in a query, such as numbers, negations, and verbs other than the
copula. BM25 gives other function words a weight near 0 anyway.
"""

from __future__ import annotations

_WORDS = {
    "en": "a an and are as at be but by for if in into is it no not of on or such that the their then there "
    "these they this to was will with",
    "es": "a al ante con como cual cuales de del desde donde durante e el ella ellas ellos en entre era eran es "
    "esa esas ese eso esos esta estas este esto estos fue fueron ha han hasta hay la las le les lo los "
    "más me mi mis muy nos o para pero por porque que qué quien se según ser si sin sobre son su sus "
    "también te tu tus u un una unas uno unos y ya",
    "fr": "a ai au aux avec c ce ces cet cette comme d dans de des dont du elle elles en est et eu il ils j je "
    "l la le les leur leurs lui m ma mais me mes moi mon n ne nos notre nous on ont ou où par pas pour qu "
    "que qui s sa se ses son sont sur t ta te tes ton tu un une vos votre vous y à été être",
    "de": "als also am an auch auf aus bei bin bis bist da dann das daß dass dem den denn der des dich die dies "
    "diese diesem diesen dieser dieses dir du ein eine einem einen einer eines er es euch für hat haben "
    "ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ist ja mein meine mich mir mit nach noch nur ob "
    "oder sein seine seinem seinen seiner sich sie sind so über um und uns unser unter vom von vor war "
    "waren was wer wie wir wird wurde zu zum zur zwischen",
    "ru": "а без бы был была были было быть в вам вас во вот все вы где да для до его ее если еще же за и из "
    "или им их к как ко ли мне мы на над нам нас не него нее ни них но о об он она они оно от по под при "
    "с со та так также там то того тоже той только том ты у уже чем что чтобы эта эти это этого этой этом "
    "этот я",
    "ar": "في من على إلى الى عن مع هذا هذه ذلك تلك التي الذي الذين هو هي هم هن ما ماذا كان كانت يكون أن ان إن "
    "لا لم لن قد و أو ثم بين كل بعد قبل حتى عند منذ كما لكن إذا هل أي به بها له لها فيه فيها عليه عليها "
    "منه منها وهو وهي",
    "fa": "و در به از که این آن را با برای است بود شد می های ها یا تا هم نیز اما اگر هر یک بر خود او ما شما "
    "آنها من تو چه چون پس بین روی است هست شده باشد بودند کرد کرده دارد داشت ای ی",
    "id": "yang dan di ke dari untuk pada dengan ini itu adalah atau oleh sebagai dalam akan juga telah sudah "
    "tidak ada karena saat bahwa dia ia mereka kami kita saya anda para sebuah seorang secara serta "
    "tersebut maka agar hingga sampai antara bagi apa apakah siapa",
    "hi": "का के की को में से है हैं था थी थे और या पर यह वह ये वे इस उस इन उन ने तो ही भी कि जो तक एक हो होता "
    "होती होते कर करने करना गया गई गए लिए साथ द्वारा क्या कौन अपने अपनी अपना मैं हम तुम आप मेरा हमारा "
    "उनके इसके उसके",
    "bn": "এবং ও এই সেই যে যা কি কে এ এর তার তাদের তিনি তারা আমি আমরা আমার আপনি তুমি থেকে জন্য করে করা হয় হয়ে "
    "হয়েছে ছিল ছিলেন আছে না এক একটি একটা কোন সঙ্গে সাথে মধ্যে উপর পর দিয়ে বা কিন্তু যদি তবে আর",
}

STOPWORDS: dict[str, frozenset[str]] = {language: frozenset(words.split()) for language, words in _WORDS.items()}
"""By ISO 639-1 code. Chinese, Japanese and Korean have none: their terms are bigrams."""
