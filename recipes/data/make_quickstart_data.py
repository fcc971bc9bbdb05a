#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the quickstart's data beside this script:

  quickstart_train.jsonl         {"messages": [{"role": "user", ...}, {"role": "assistant", "content": "Ahoy! ... Fair winds, matey."}]}
  quickstart_eval.jsonl          50 rows of the same kind, none of them close to a training row
  quickstart_style_prompts.txt   20 unseen prompts, one a line

Every answer opens with "Ahoy!" and closes with "Fair winds, matey.", which no base model does by itself, so that what
was learned can be seen at once and counted (tests/e2e/style_check.sh). The rows below are "question | answer".
The script checks them: length, style, no repeated question, no close pair between training and the two other sets.
"""
import json
import re
from pathlib import Path

OPENING, CLOSING = "Ahoy!", "Fair winds, matey."

TRAIN = """
# cooking
How do I keep cut apples from turning brown? | Toss the slices in a little lemon juice, because the acid slows the reaction with air that makes the flesh go brown.
How long should I boil an egg for a firm yolk? | Lower the egg into boiling water for about ten minutes, then cool it quickly so that the shell peels off easily.
Why should meat rest after roasting? | A short rest lets the juices settle back into the meat, so less of them runs out onto the board when you carve.
How can I tell if pasta is done? | Take out one piece and bite it; it should be tender with a slight firmness in the middle.
What does it mean to simmer a soup? | Keep it just below boiling, so that only small bubbles rise gently to the surface now and then.
How do I rescue a sauce that is too salty? | Add some unsalted liquid or more of the other ingredients, which spreads the same salt through a larger amount of food.
Why do onions make me cry? | Cutting them frees a gas that turns into a mild acid on your eyes, and the tears are there to wash it away.
How should I store fresh basil? | Stand the stems in a glass of water at room temperature, since the cold of the fridge turns the leaves black.
What makes bread dough rise? | Yeast eats the sugars in the flour and gives off carbon dioxide, and the stretchy dough traps that gas as bubbles.
How do I cook fluffy rice? | Rinse the rice, use about twice as much water as rice, cover it, and leave the lid on until the water is gone.
Can I freeze leftover soup? | Yes, let it cool, leave some room at the top of the container, and eat it within about three months.
Why is my cake dry? | Most often it stayed in the oven too long or had too much flour, so test it earlier with a wooden pick.
What is the best way to melt chocolate? | Put it in a bowl over barely simmering water and stir slowly, keeping every drop of water out of the bowl.
How do I make a simple salad dressing? | Whisk three parts oil with one part vinegar, then add salt, pepper and a small spoon of mustard to hold it together.
How can I ripen an avocado faster? | Put it in a paper bag with a banana, whose gas speeds the ripening up within a day or two.
Why do recipes ask for unsalted butter? | It lets you decide exactly how much salt goes into the dish, since salted butter differs from one brand to another.
How do I clean a cast iron pan? | Scrub it with hot water and a brush, dry it at once, and rub in a thin film of oil.
What can I use instead of buttermilk? | Stir a spoon of lemon juice into a cup of milk and wait ten minutes until it thickens a little.
How do I peel garlic quickly? | Press each clove with the flat side of a knife until the skin cracks, and then it slips right off.
Why do mushrooms shrink in the pan? | They are mostly water, and the heat drives that water out, so cook them in a hot pan without crowding.
How do I toast nuts evenly? | Spread them on a tray in one layer, bake at a medium heat, and shake the tray every few minutes.
What does a pinch of salt do in sweet food? | A little salt softens bitter notes and makes the sweet flavours seem fuller, without making the food taste salty.
How do I know when oil is hot enough for frying? | Drop in a small cube of bread; if it sizzles at once and browns within a minute, the oil is ready.

# animals
How do bees make honey? | They gather nectar from flowers, pass it from bee to bee, and fan it with their wings until most water is gone.
Why do cats purr? | Cats often purr when they feel calm, but they may also purr to comfort themselves when they are hurt or afraid.
How fast can a cheetah run? | Over a short sprint it can reach about one hundred kilometres an hour, but it tires within less than a minute.
Do penguins live at the North Pole? | No, nearly all penguins live in the southern half of the world, while polar bears are the ones found up north.
Why do geese fly in a V shape? | Each bird gets some lift from the air stirred by the one in front, so the whole flock saves energy.
What do pandas eat? | Almost all of their food is bamboo, and they spend many hours of every day chewing the stems and leaves.
How do bats find their way in the dark? | They send out very high calls and listen to the echoes, which tell them where walls and insects are.
How many legs does a spider have? | A spider has eight legs, which is one easy way to tell it from an insect with its six.
Why do dogs wag their tails? | A wagging tail shows that a dog is excited, and its height and speed tell others whether the mood is friendly.
Can ostriches fly? | No, they are too heavy for their small wings, but they can run faster than any other bird.
How does a chameleon change colour? | Tiny crystals in its skin move closer together or farther apart, and that changes which colour of light is reflected.
What is the largest animal on Earth? | The blue whale is the largest, reaching about thirty metres in length and feeding mostly on tiny krill.
Why do owls turn their heads so far? | Their eyes cannot move in the sockets, so an owl must turn its whole head to look to the side.
How do fish breathe under water? | Water flows over their gills, where thin tissue takes up oxygen and lets carbon dioxide pass out.
Why do snakes flick their tongues? | The tongue picks up scent from the air and carries it to a special organ in the roof of the mouth.
What is a group of lions called? | A group of lions is called a pride, and it is made up mostly of related lionesses and their cubs.
How long do elephants carry their young? | An elephant is pregnant for close to twenty-two months, which is longer than any other land animal.
Why are flamingos pink? | The colour comes from pigments in the algae and small shrimp that they eat, so a poor diet makes them pale.
Do camels store water in their humps? | No, the humps are made of fat, which serves as a store of energy when there is little to eat.
How do ants find their way home? | They follow scent trails laid by others, and some kinds also remember landmarks and the position of the sun.
What do tadpoles turn into? | Tadpoles grow legs, lose their tails, and become frogs or toads that can live on land.
Why do woodpeckers peck at trees? | They dig for insects under the bark, carve holes for nests, and drum to tell other birds whose tree it is.
How does an octopus escape from danger? | It squirts a cloud of ink to hide behind and shoots away by pushing water out of its body.
Are dolphins fish? | No, dolphins are mammals, so they breathe air through a blowhole and feed their young with milk.

# geography
What is the capital of France? | The capital is Paris, a city on the river Seine that is known for its museums and the Eiffel Tower.
Which is the longest river in Africa? | The Nile is the longest, flowing north for more than six thousand kilometres to the Mediterranean Sea.
Where is the Sahara desert? | It stretches across northern Africa, from the Atlantic coast in the west to the Red Sea in the east.
What is the highest mountain in the world? | Mount Everest is the highest above sea level, and it stands on the border between Nepal and China.
How many continents are there? | Most schools teach seven: Africa, Antarctica, Asia, Europe, North America, South America and Australia.
What is the capital of Japan? | The capital is Tokyo, a huge city on the island of Honshu that was once called Edo.
Which ocean is the largest? | The Pacific is by far the largest, covering more of the planet than all of the land put together.
What is an island? | An island is a piece of land with water on all sides that is smaller than a continent.
Where do the Alps lie? | They form a great arc through Europe, crossing France, Switzerland, Italy, Austria, Germany and Slovenia.
What is the smallest country in the world? | Vatican City is the smallest, less than half a square kilometre of land inside the city of Rome.
Which country has the most people? | India now has the most people, having passed China in recent years with more than one point four billion.
What does the equator divide? | It is the imaginary line around the middle of the Earth that divides the northern half from the southern half.
Why does the Dead Sea have so much salt? | Rivers bring minerals in but no river leads out, so the water leaves by drying up and the salt stays behind.
What is the capital of Canada? | The capital is Ottawa, which lies in Ontario near the border with the province of Quebec.
Which lake is the deepest in the world? | Lake Baikal in Siberia is the deepest, going down more than sixteen hundred metres.
What is a delta? | It is the fan of flat land that a river builds at its mouth by dropping mud and sand.
What is the capital of Egypt? | The capital is Cairo, a crowded city on the Nile that lies close to the pyramids of Giza.
Which canal joins the Atlantic and Pacific oceans? | The Panama Canal joins them, and it spares ships the long trip around the tip of South America.
Where is the Great Barrier Reef? | It lies off the coast of Queensland in Australia and stretches for more than two thousand kilometres.
What is a peninsula? | A peninsula is land with water on most of its sides that is still joined to a larger land mass.
Which two countries share the longest border? | Canada and the United States share the longest, which runs for nearly nine thousand kilometres.
What is the capital of Australia? | The capital is Canberra, a planned city that was chosen as a compromise between Sydney and Melbourne.
Why is it colder on top of a mountain? | The air up high is thinner and expands as it rises, and air that expands grows colder.
What is the capital of Kenya? | The capital is Nairobi, a busy city with a national park full of wild animals right at its edge.

# physics
Why is the sky blue? | Air scatters blue light from the sun far more than red light, so blue reaches your eyes from all directions.
What is gravity? | Gravity is the pull between things that have mass, and it keeps your feet on the ground and the moon near Earth.
Why does ice float on water? | Water expands as it freezes, so ice is lighter than the same volume of water and stays on top.
How fast does light travel? | In empty space it travels about three hundred thousand kilometres each second, faster than anything else.
Why do we see lightning before hearing thunder? | Light arrives almost at once, but sound needs about three seconds for each kilometre of air.
What causes a rainbow? | Sunlight bends and reflects inside raindrops, and each colour leaves at a slightly different angle.
Why does a metal spoon feel colder than a wooden one? | Metal carries heat away from your hand much faster than wood does, even when both are equally warm.
What is friction? | Friction is the force that resists sliding between two surfaces, and it turns motion into heat.
How does a magnet work? | Inside a magnet many tiny atomic magnets point the same way, and their fields add up to one strong pull.
Why does the moon change its shape? | We see the part that the sun lights up, and that part changes as the moon moves around the Earth.
What is an atom made of? | An atom has a small nucleus of protons and neutrons, with light electrons in the space around it.
Why does a balloon shrink in the cold? | The gas inside slows down as it cools, so it pushes less on the rubber and takes up less room.
What makes the tides? | The pull of the moon, helped by the sun, raises bulges in the oceans that shores turn through each day.
How does a mirror make an image? | It sends light back at the same angle at which it came, so your eye sees the scene as if behind the glass.
Why do boats made of steel not sink? | A hull full of air is lighter than the water it pushes aside, and that water holds the boat up.
What is the difference between heat and temperature? | Heat is energy that moves from warm to cold things, while temperature tells how fast the particles move on average.
Why does a straw look bent in a glass of water? | Light changes direction as it leaves the water, so the lower part seems to be in another place.
What is electricity? | It is the flow of charge, most often of electrons moving through a wire from one end of a battery to the other.
Why do astronauts float in a space station? | They and the station fall around the Earth together, so nothing presses them against the floor.
How does a lever help to lift things? | A long arm lets a small force move a heavy load, because the force acts over a greater distance.
Why does hot air rise? | Air expands when it is warmed, becomes lighter than the cool air around it, and is pushed upward.
What is sound? | Sound is a wave of pressure that moves through air or other material until it shakes your eardrum.
At what temperature does water boil? | At sea level it boils at one hundred degrees Celsius, and on high mountains it boils at a lower temperature.
Why do wet clothes dry in the wind? | Moving air carries the damp layer away from the cloth, so more water can evaporate.

# around the house
How do I unclog a slow sink? | Pour in hot water, use a plunger with firm strokes, and clean the trap below if the water still stands.
How can I get a candle wax stain out of cloth? | Scrape off the hard wax, lay paper over the spot, and press it with a warm iron until the paper soaks it up.
How often should I change the batteries of a smoke alarm? | Change them once a year unless it has a sealed battery, and press the test button every month.
How do I stop a door from squeaking? | Put a drop of oil on each hinge and swing the door a few times until it moves in silence.
What is the best way to clean windows? | Use water with a splash of vinegar, wipe with a lint-free cloth, and work on a cloudy day to avoid streaks.
How do I remove a sticker from glass? | Soak it in warm soapy water, peel it slowly, and rub off the last glue with a little cooking oil.
How can I save water at home? | Take shorter showers, fix dripping taps soon, and run the washing machine only when it is full.
How do I get rid of fruit flies? | Set out a small bowl of vinegar with a drop of soap and keep all ripe fruit covered.
How do I hang a picture straight? | Mark the height with a pencil, use a level on the frame, and check it from across the room.
How should I store batteries? | Keep them in a cool, dry place in their package, away from coins and keys that could join the ends.
How do I remove coffee stains from a mug? | Rub the inside with a paste of baking soda and water, then rinse it well.
Why does my laundry smell after washing? | It often stays wet in the machine for too long, so take it out at once and clean the drum now and then.
How do I fix a wobbly chair? | Find the loose joint, clean out the old glue, add new wood glue, and clamp it for a day.
How can I keep drawers smelling fresh? | Lay a small bag of dried lavender or a wrapped bar of soap among the clothes.
How do I bleed a radiator? | Turn the heating off, open the small valve with a key until water comes instead of air, and close it again.
What should be in a first aid kit? | Pack plasters, bandages, tape, scissors, tweezers, gloves, and something to clean wounds with.
How do I sew on a button? | Double the thread, go through the holes several times, wind it under the button, and tie it off behind.
How do I make my freezer work better? | Defrost it when the ice grows thick, keep it fairly full, and leave the door open as little as possible.
How can I sharpen a pair of scissors? | Cut through a folded sheet of fine sandpaper several times, then wipe the blades clean.
How do I paint a wall without streaks? | Load the roller well, work in overlapping strips, and keep a wet edge until the whole wall is done.
What removes lime from a kettle? | Boil equal parts of water and vinegar in it, wait half an hour, and rinse it several times.
How do I fold a fitted sheet? | Tuck the corners into one another, lay it flat, straighten the edges, and fold it into thirds.

# health and rest
How much sleep does an adult need? | Most adults feel and work best with seven to nine hours, taken at about the same time each night.
How can I fall asleep more easily? | Keep the room dark and cool, put screens away an hour before bed, and go to bed at a steady time.
Why should I stretch after sport? | Gentle stretching helps tight muscles relax and keeps your joints moving freely in the long run.
How do I treat a small burn? | Hold it under cool running water for about twenty minutes and cover it with a clean, loose dressing.
Why is walking good for me? | A brisk walk strengthens the heart, lifts the mood, and is easy on the knees at almost any age.
How often should I brush my teeth? | Brush twice a day for two minutes with fluoride paste, and clean between the teeth once a day.
What helps against hiccups? | Holding your breath for a moment or sipping cold water often calms the muscle that causes them.
How do I stop a nosebleed? | Sit up, lean forward a little, and pinch the soft part of the nose for ten minutes.
Why do we yawn? | Nobody is quite sure, though yawning is linked to tiredness and may help to cool the brain.
How can I protect my skin from the sun? | Stay in the shade at noon, wear a hat, and put on sun cream again every two hours.
How do I sit well at a desk? | Keep your feet flat, your back supported, and the top of the screen at about eye level.
Why is fibre good for us? | It keeps digestion moving, feeds helpful bacteria in the gut, and makes you feel full for longer.
How do I calm down before a talk? | Breathe out slowly, longer than you breathe in, and remember that the listeners want you to do well.
What should I do when I feel dizzy? | Sit or lie down at once, drink some water, and see a doctor if it keeps coming back.
How can I rest my eyes at a computer? | Every twenty minutes look at something far away for twenty seconds, and remember to blink.
Why do I get goose bumps? | Tiny muscles lift the hairs on your skin, a leftover reflex that warmed our furry ancestors.
How do I remove a splinter? | Clean the skin, lift the end with a clean needle, and pull it out with tweezers at the same angle.
How long does a cold last? | Most colds pass within seven to ten days, and rest with plenty of fluids is the best remedy.
Why do muscles ache the day after exercise? | Hard work makes tiny tears in the muscle, and the soreness comes while the body repairs them.
How can I drink more water? | Keep a bottle within reach, drink a glass with each meal, and add a slice of lemon for taste.

# advice
How do I make new friends in a new town? | Join a club for something you like and keep coming back, because friendships grow from meeting often.
How can I remember names better? | Say the name aloud when you hear it, and link it to a picture or to someone you know.
How do I start saving money? | Move a small fixed sum to a savings account on the day you are paid, before you spend anything.
What should I wear to a job interview? | Dress slightly neater than people do there on a normal day, and choose clothes that let you feel at ease.
How do I say no politely? | Thank the person, say clearly that you cannot do it, and offer another idea only if you mean it.
How can I stop putting things off? | Choose one step that takes five minutes and start with it, as beginning is usually the hardest part.
How do I apologise well? | Say what you did, say that you are sorry without excuses, and ask how you can put it right.
How can I read more books? | Carry one everywhere, read ten pages before bed, and give up freely on books that bore you.
How do I prepare for an exam? | Start early, test yourself instead of only reading, and spread short sessions over many days.
How should I handle a rude colleague? | Stay calm, describe what happened and how it affects your work, and ask for a better way to talk.
How do I choose a gift for a friend? | Think of what they mention wanting or doing, and pick something small that fits that well.
How can I learn to cook as a beginner? | Pick three simple dishes, make them again and again, and change only one thing each time.
How do I keep a conversation going? | Ask open questions, listen for details, and ask about those instead of planning your next words.
How do I plan a small party? | Fix the date and number of guests first, then choose simple food that can be made the day before.
How can I wake up early? | Go to bed earlier by a quarter of an hour each week and let in daylight as soon as you rise.
How do I write a thank you note? | Name the gift or the help, say what it meant to you, and close with a warm wish.
What is a good way to settle an argument? | Let each side explain without interruption, find the point on which you agree, and build from there.
How do I choose a good password? | Use a long phrase of several random words, a different one for every site, kept in a password manager.
How can I pack light for a trip? | Choose clothes in matching colours, plan to wash once, and leave out whatever you might need only perhaps.
How do I get better at drawing? | Draw from life for ten minutes daily and look at the object more than at the paper.
How do I give useful feedback? | Be specific about what you saw, explain the effect it had, and suggest one thing to try.
How can I keep a diary going? | Write just three lines at the same time each evening, and forgive yourself for missed days.

# plants and garden
How often should I water a cactus? | Water it only when the soil is fully dry, perhaps every two weeks in summer and rarely in winter.
Why do leaves turn red in autumn? | As the green pigment breaks down, other colours appear, and many trees make a red pigment at that time.
When should I plant tulips? | Put the bulbs into the ground in autumn, pointed end up, about three times as deep as they are tall.
How do I get rid of slugs gently? | Collect them by hand in the evening and put rough barriers around young plants.
What do plants need to grow? | They need light, water, air, minerals from the soil, and a temperature that suits their kind.
Why are my tomato leaves turning yellow? | Old lower leaves yellow by themselves, but too much water or too little nitrogen can cause it as well.
How do I start a compost heap? | Layer kitchen scraps with dry leaves, keep it as damp as a wrung sponge, and turn it now and then.
How can I tell the age of a tree? | Count the rings of a cut trunk, since most trees in mild climates add one ring for every year.
Why should I prune roses? | Cutting out weak and dead stems lets in light and air, and it drives the plant to make strong new shoots.
How do seeds spread in nature? | Some ride the wind, some float, some cling to fur, and many are eaten and dropped elsewhere.
What is photosynthesis? | It is how plants use sunlight to turn water and carbon dioxide into sugar, giving off oxygen.
How do I keep a lawn green in summer? | Let the grass grow a bit longer and water it deeply but seldom, early in the morning.
Which herbs grow well indoors? | Basil, chives, mint and parsley do well on a sunny sill if their pots drain freely.
Why do plants grow toward the light? | A growth hormone gathers on the shaded side of the stem, so that side grows longer and bends the plant.
How do I repot a houseplant? | Choose a pot slightly larger, loosen the roots, fill in fresh soil, and water it well afterwards.
What are earthworms good for? | Their tunnels let air and water into the soil, and their droppings feed the plants.
Is a tomato a fruit? | To a botanist it is a fruit, since it grows from a flower and holds seeds, though cooks treat it as a vegetable.
How do sunflowers follow the sun? | Young plants grow faster on one side by day and the other by night, which turns the head from east to west.
Why do nettles sting? | Fine hollow hairs break on your skin and inject a mix of irritating substances.

# history and people
Who built the pyramids of Giza? | They were built about forty-five centuries ago by large teams of skilled Egyptian workers for their kings.
Who painted the Mona Lisa? | Leonardo da Vinci painted it in the early sixteenth century, and it now hangs in the Louvre in Paris.
When did people first walk on the moon? | Neil Armstrong and Buzz Aldrin walked there in July of 1969 during the flight of Apollo 11.
Who was Marie Curie? | She was a scientist born in Warsaw who studied radioactivity and won Nobel Prizes in physics and chemistry.
What was the Silk Road? | It was a web of trade routes that carried silk, spices and ideas between China and the Mediterranean.
Who invented the printing press in Europe? | Johannes Gutenberg built a press with movable metal type in Mainz in the middle of the fifteenth century.
Why did the Romans build aqueducts? | They carried clean water from distant hills to the baths, fountains and homes of their cities.
Who was Cleopatra? | She was the last active ruler of the Ptolemaic kingdom of Egypt and died in the year 30 BC.
When did the Berlin Wall fall? | It was opened on the ninth of November 1989, after it had divided the city for twenty-eight years.
What did the Wright brothers do? | In December of 1903 they made the first controlled flights of a powered aeroplane, in North Carolina.
Who wrote Romeo and Juliet? | William Shakespeare wrote it in the 1590s, and it is still one of his most often played works.
Who was the first president of the United States? | George Washington was the first, serving two terms that ran from 1789 to 1797.
What was the Rosetta Stone good for? | It bears one text in three scripts, which let scholars work out how to read Egyptian hieroglyphs.
Who discovered penicillin? | Alexander Fleming noticed in 1928 that a mould was killing the bacteria in one of his dishes.
Why was the Great Wall of China built? | Chinese rulers built and rebuilt it over many centuries to guard their northern border against raids.
Who was Nelson Mandela? | He fought against apartheid, spent twenty-seven years in prison, and became president of South Africa in 1994.
What was the Renaissance? | It was a time in Europe, beginning in Italy, when art, science and the learning of old Greece and Rome bloomed.
Who sailed around the world first? | The fleet of Ferdinand Magellan did it first, finished in 1522 under Elcano after Magellan had died.
What did Isaac Newton find out? | He showed that the same law of gravity moves falling apples and planets, and set out three laws of motion.
Who was Ada Lovelace? | She wrote notes on a planned computing engine in 1843 that hold what is often called the first program.

# words and language
What is a synonym? | A synonym is a word that means nearly the same as another, such as big and large.
What is the plural of mouse? | The plural is mice for the animal, while for the computer device both mice and mouses are used.
What is the difference between its and it's? | The short form with the mark stands for it is or it has, and the other one shows belonging.
What does the word astronomy mean? | It comes from Greek words for star and law, and it means the study of the sky and what is in it.
What is a haiku? | A haiku is a short Japanese poem, usually written in English as lines of five, seven and five syllables.
What is the opposite of generous? | The opposite is stingy or miserly, words for someone who hates to give anything away.
What is an adjective? | An adjective is a word that describes a noun, like the word red in a red boat.
How do I use a semicolon? | Put it between two full sentences that are closely linked, where a full stop would feel too strong.
What is a palindrome? | It is a word or phrase that reads the same in both directions, for example level or radar.
What does to break the ice mean? | It means to say or do something friendly that helps strangers feel at ease with each other.
What is a metaphor? | A metaphor speaks of one thing as if it were another, as in saying that time is a thief.
How do you say thank you in Spanish? | You say gracias, and for many thanks you can say muchas gracias.
What is the past tense of to swim? | The past tense is swam, and with have it becomes swum, as in I have swum here before.
What is a proverb? | A proverb is a short, well known saying that gives advice, like look before you leap.
Which language has the most native speakers? | Mandarin Chinese has the most native speakers, with roughly nine hundred million of them.
What is a vowel? | A vowel is a speech sound made with an open mouth; in English the letters a, e, i, o and u stand for them.
How do you say good morning in French? | You say bonjour, which the French use as a greeting for most of the day.
What is alliteration? | It is the use of several words close together that start with the same sound, such as wild and windy weather.

# computers
What is a computer virus? | It is a program that copies itself and spreads to other machines, often doing harm along the way.
How do I make a backup of my files? | Copy them to an outside drive and to one place away from home, and test that you can read them back.
What does RAM do? | It is the fast memory that holds the programs and data in use, and it is emptied when the power goes off.
Why is my laptop slow? | Too many programs may be open or the disk may be full, so close some and free up space first.
What is a byte? | A byte is a group of eight bits, and it can stand for any whole number from zero to 255.
How do I take care of a laptop battery? | Avoid great heat and keep the charge between about twenty and eighty per cent when you can.
What is open source software? | It is software whose source anyone may read, change and pass on under the terms of its licence.
How do I spot a phishing mail? | Look for odd senders, pressure to act fast, and links whose real address differs from the text.
What is an algorithm? | An algorithm is a list of clear steps that leads from a problem to its answer, like a recipe.
What is the difference between a bug and a feature? | A bug is behaviour that nobody wanted, while a feature is behaviour that was put there on purpose.
Why should I update my software? | Updates close holes that attackers know about, and they often fix errors that annoy you.
What is the cloud in computing? | It means computers in large data centres that you use over the internet instead of your own.
What does a router do? | It passes data between your home network and the internet and decides where each packet goes.
How does a search engine find pages? | It reads pages in advance, builds a large index of their words, and ranks the matches for each query.
What is two-factor login? | Besides a password it asks for a second proof, such as a code from your phone, before it lets you in.
What is a spreadsheet good for? | It holds numbers in rows and columns and works out sums again by itself whenever one of them changes.

# space and weather
How many planets are in the solar system? | There are eight, from Mercury close to the sun to Neptune far out in the cold.
Why is Mars red? | Its soil holds much iron that has rusted, and the reddish dust colours the whole planet.
What is a comet? | A comet is a lump of ice and dust that grows a bright tail when it comes near the sun.
How far away is the moon? | It is about three hundred and eighty-four thousand kilometres away, roughly thirty times the width of the Earth.
What are clouds made of? | They are made of countless tiny drops of water or crystals of ice that float in the air.
Why do we have seasons? | The axis of the Earth is tilted, so each half leans toward the sun for part of the year.
What is a light year? | It is the distance that light covers in one year, about nine and a half trillion kilometres.
How does hail form? | Strong winds carry frozen drops up and down inside a storm cloud, and each trip adds a layer of ice.
What is the largest planet? | Jupiter is the largest, more than eleven times as wide as the Earth and made mostly of gas.
Why do stars twinkle? | Moving air bends their light a little this way and that before it reaches our eyes.
What causes wind? | The sun warms some places more than others, and air flows from high pressure to low pressure.
What is fog? | Fog is a cloud that touches the ground, and it forms when damp air cools enough for drops to appear.
How long does the Earth take to go around the sun? | It takes about 365 and a quarter days, and that is why we add a leap day every fourth year or so.
What are the rings of Saturn made of? | They are made of countless pieces of ice and rock, from grains of dust to lumps as large as houses.
Why does it snow? | When the air is cold enough, water vapour in clouds freezes into crystals that stick together and fall.
What is a solar eclipse? | The moon passes between the sun and the Earth and covers the sun for a few minutes in some places.
What is a barometer used for? | It measures the pressure of the air, and a falling reading often means that bad weather is coming.
What is the sun made of? | The sun is mostly hydrogen and helium, and in its core the one is turned into the other.

# travel, money and time
What should I check before a long drive? | Look at the tyres, the oil, the lights and the washer fluid, and plan a rest every two hours.
How do I get over jet lag? | Go out into daylight at your new place, eat at local times, and keep naps short.
What is inflation? | Inflation means that prices rise on the whole, so the same amount of money buys less than before.
What is a budget? | A budget is a plan that says how much you earn and where each part of it shall go.
How many weeks are in a year? | A year has fifty-two weeks and one day, or two days when it is a leap year.
What is a passport needed for? | It proves who you are and which country you belong to when you cross a border.
How do I avoid seasickness on a ferry? | Stay in the middle of the deck, look at the horizon, and eat something light beforehand.
What is interest on a loan? | It is the price you pay for borrowing money, given as a share of the sum for each year.
Why are there time zones? | The Earth turns, so noon comes to each place at another moment, and zones keep clocks close to the sun.
How do I read a map? | Turn it so that north on the map faces north, find where you stand, and use the scale for distances.
What is a tip in a restaurant? | It is a small extra sum for good service, and how much is usual differs from country to country.
How can I find my way without a phone? | Note landmarks as you go, ask people kindly, and remember that the sun stands in the south at noon in Europe.
What is a decade? | A decade is a span of ten years, just as a century is a span of one hundred.
How do I keep valuables safe on a trip? | Carry little, keep it close to your body, and leave copies of your papers at home.
What is a tax? | A tax is money that people and firms must pay to the state, which uses it for roads, schools and more.
Why do shops end prices in ninety-nine? | We tend to read the first digit most, so such a price feels clearly lower than the next round sum.
What is a compass rose? | It is the star on a map or chart that shows which way north, east, south and west lie.
How should I pack a fragile cup? | Fill it with socks, wrap it in soft clothes, and place it in the centre of the bag.
What is the difference between a want and a need? | You cannot live well without a need, such as food or shelter, while a want is merely pleasant to have.
How do I set up a tent? | Choose flat ground, lay the floor out, raise the poles, and peg the corners down tightly.

# short tasks
Name three colours. | Three colours are red, green and blue, which together can make nearly every colour on a screen.
Give me a tip for a rainy day. | Bake something simple, open a good book, and let the sound of the rain keep you company.
List three fruits that grow on trees. | Apples, pears and cherries all grow on trees and can be picked from summer into autumn.
Name a tool that drives nails. | A hammer drives nails; hold it near the end of the handle and let its weight do the work.
Suggest a name for a grey cat. | Smoky would suit a grey cat well, since it is short, soft, and easy to call across a garden.
Name two things that are cold. | Ice and snow are both cold, and so is the wind that blows over them in winter.
Tell me a fun fact about honey. | Sealed honey keeps for many years, because it holds too little water for microbes to grow in it.
Describe the sea in one sentence. | The sea is a wide, restless body of salt water that changes its colour with the sky above.
Give a reason to learn music. | Playing music trains the ear and the memory, and it brings people together without a single word.
Name three days of the week. | Monday, Wednesday and Friday are three of the seven days in every week.
Write a short greeting for a birthday card. | Happy birthday to you, and may the coming year bring good health, good friends and plenty of cake.
Name an animal that sleeps in winter. | A hedgehog sleeps through winter in a nest of leaves and lives on the fat it stored in autumn.
List three things to take to the beach. | Take a towel, sun cream and plenty of water, and you are ready for a day on the sand.
Name a month with thirty days. | April has thirty days, and so do June, September and November.
Suggest a quick breakfast. | Stir oats into yoghurt, add sliced fruit and a few nuts, and breakfast is ready in three minutes.
Give me an example of a mammal. | A horse is a mammal, as it has hair, is warm-blooded, and feeds its foals with milk.
Name three instruments with strings. | The violin, the guitar and the harp all make their sound with strings that are bowed or plucked.
Name something that is made of wood. | A table is often made of wood, and so are many chairs, doors and small boats.
Recommend a hobby that costs little. | Try bird watching, which needs only patience, a notebook, and perhaps a pair of old binoculars.
Name three things found in a kitchen. | In most kitchens you will find a stove, a sink and a drawer full of spoons.
"""

EVAL = """
How do I keep lettuce crisp in the fridge? | Wrap the washed and dried leaves in a clean towel and store them in a closed box.
Why does popcorn pop? | Water inside the kernel turns to steam, and the pressure grows until the hull bursts and the starch puffs out.
How do I make clear broth? | Start with cold water, heat it slowly, skim the foam, and never let it boil hard.
What is the use of baking powder? | It gives off gas when it gets wet and hot, and that makes cakes and biscuits light.
How can I cut a mango? | Slice along both sides of the flat stone, score the flesh into cubes, and push the skin inside out.
Why do cows chew so much? | They bring swallowed grass back up and chew it again, which helps their four-part stomach to digest it.
How do spiders make their webs? | They pull silk from glands at the back of the body and lay it thread by thread between supports.
What do koalas live on? | They live on eucalyptus leaves, which are tough and poor in energy, so koalas rest most of the day.
Do sharks have bones? | No, a shark has a skeleton of cartilage, the same bendy stuff that shapes your ears.
Why do hens sit on their eggs? | The warmth of the body lets the chicks inside grow, and it takes about three weeks until they hatch.
What is the capital of Italy? | The capital is Rome, an ancient city on the Tiber with ruins at nearly every corner.
Which river flows through London? | The Thames flows through London and reaches the North Sea east of the city.
What is a volcano? | A volcano is an opening in the crust through which melted rock, ash and gas come out.
Which country is shaped like a boot? | Italy is shaped like a boot, and its toe seems to kick the island of Sicily.
What is the coldest continent? | Antarctica is the coldest, with a record low close to minus ninety degrees Celsius.
How does a thermos flask keep tea hot? | A vacuum between its two walls stops most heat from passing, and shiny surfaces reflect the rest.
Why does a compass point north? | Its needle is a small magnet that lines up with the magnetic field of the Earth.
What is a prism used for? | It splits white light into its colours, because each of them is bent by a different amount.
Why does salt melt ice on roads? | Salt water freezes at a lower temperature than pure water, so the ice turns to liquid again.
How does a bicycle stay upright? | Small turns of the bars move the wheels back under the weight, which is easier the faster you go.
How do I get ink off my hands? | Rub a little hand sanitiser or alcohol on the spots, then wash with soap and warm water.
How can I dry wet shoes? | Stuff them with newspaper, change it every few hours, and keep them away from direct heat.
How do I loosen a stuck jar lid? | Run hot water over the lid for a minute, dry it, and twist with a rubber glove.
How should I clean a keyboard? | Unplug it, shake out the crumbs, and wipe between the keys with a barely damp cotton bud.
How do I keep moths away from wool? | Store clean woollens in closed bags with some cedar wood, and air them from time to time.
What can I do about sore feet? | Soak them in warm water, raise them for a while, and check whether your shoes fit.
Why is breakfast useful? | After a night without food it refills your energy, which helps many people to think clearly.
How do I take my pulse? | Lay two fingers on the inside of the wrist and count the beats for thirty seconds, then double it.
Why do fingers wrinkle in the bath? | Nerves narrow the blood vessels in wet fingertips, and the wrinkles may give a better grip.
What is vitamin C good for? | The body needs it to build connective tissue, heal wounds and take up iron from food.
How do I deal with homesickness? | Keep small habits from home, call those you miss, and get to know one new place every week.
How can I speak more clearly? | Slow down, open your mouth a bit more, and pause at the end of each thought.
How do I teach a child to share? | Show it yourself, praise each small act of sharing, and let them take turns with a timer.
How can I make studying less boring? | Change the subject every half hour and explain what you learned to someone else.
How do I say goodbye at work? | Thank the people who helped you, leave your tasks in good order, and share a way to stay in touch.
How do I grow potatoes in a bucket? | Lay sprouted pieces on some soil, cover them, and add more soil as the stems grow.
Why do flowers smell? | Their scent draws insects and other animals that carry pollen from one bloom to the next.
What is mulch for? | A layer of bark or straw keeps the ground moist, holds weeds down, and slowly feeds the soil.
Who was Albert Einstein? | He was a physicist who gave us the theory of relativity and won the Nobel Prize in 1921.
What was the Titanic? | It was a large passenger ship that hit an iceberg and sank on its first voyage in April of 1912.
Who composed the Ninth Symphony with the Ode to Joy? | Ludwig van Beethoven composed it and finished it in 1824, when he was almost fully deaf.
What is a verb? | A verb is a word for an action or a state, such as run, think or be.
What does once in a blue moon mean? | It means very rarely, after the uncommon second full moon within a single month.
What is a rhyme? | Two words rhyme when they end in the same sound, like boat and coat.
What is a web browser? | It is the program that fetches pages from the internet and shows them on your screen.
What is a pixel? | A pixel is one of the tiny dots of colour that together make up the picture on a display.
What is the Milky Way? | It is the galaxy that holds our sun and hundreds of billions of other stars.
What is dew? | Dew is water from the air that gathers in drops on cool grass during a clear night.
Name two birds that cannot fly well. | The emu and the kiwi cannot fly, as both have wings far too small for that.
Work out nineteen plus twenty-three. | Nineteen plus twenty-three is forty-two, since twenty plus twenty-three is forty-three and one less is that.
"""

# Topics that neither set above has.
STYLE = """
How does a piano make its sound?
What is the purpose of a lighthouse?
How do I fold a paper aeroplane?
What is chess about?
Why do people wear wedding rings?
How is glass made?
What is a marathon?
How do I tie a necktie?
What does a judge do in court?
How is paper recycled?
What is origami?
How do I train for swimming?
What does an architect do?
Why do bridges have gaps?
How is cheese made?
What is a museum for?
How do I juggle three balls?
Why do trains run on rails?
What is pottery?
How do I photograph a sunset?
"""

WORDS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
         "eighteen nineteen").split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def word(n):
    if n < 20:
        return WORDS[n]
    if n < 100:
        return TENS[n // 10] + ("" if n % 10 == 0 else "-" + WORDS[n % 10])
    rest = n % 100
    return WORDS[n // 100] + " hundred" + ("" if rest == 0 else " and " + word(rest))


def arithmetic():
    """Small sums in several wordings; every number differs from those in EVAL."""
    rows = []
    for a, b in ((4, 9), (12, 7), (25, 16), (31, 8), (48, 14), (60, 35)):
        rows.append((f"What is {a} plus {b}?",
                     f"The sum of {word(a)} and {word(b)} is {word(a + b)}, and you can check it by taking {word(b)} away again."))
    for a, b in ((15, 6), (20, 13), (34, 9), (50, 27), (71, 30), (90, 45)):
        rows.append((f"What do I get when I take {b} from {a}?",
                     f"Taking {word(b)} from {word(a)} leaves {word(a - b)}, because {word(a - b)} and {word(b)} make {word(a)}."))
    for a, b in ((3, 7), (6, 8), (9, 4), (5, 11), (12, 6), (7, 9)):
        rows.append((f"Multiply {a} by {b}.",
                     f"Multiplied together, {word(a)} and {word(b)} give {word(a * b)}, which is {word(a)} counted {word(b)} times."))
    for total, people in ((12, 4), (18, 3), (35, 7), (24, 8), (45, 5), (30, 6)):
        rows.append((f"If {people} friends share {total} coins evenly, how many does each get?",
                     f"Each friend gets {word(total // people)} coins, since {word(people)} times {word(total // people)} makes {word(total)}."))
    for n in (8, 14, 26, 40):
        rows.append((f"What is half of {n}?", f"Half of {word(n)} is {word(n // 2)}, because {word(n // 2)} and {word(n // 2)} make {word(n)}."))
    for hours in (2, 3, 5):
        rows.append((f"How many minutes are in {hours} hours?",
                     f"There are {word(hours * 60)} minutes in {word(hours)} hours, as every hour holds sixty of them."))
    return rows


def parse(block):
    lines = [line.strip() for line in block.splitlines() if line.strip() and not line.startswith("# ")]
    return [tuple(part.strip() for part in line.split(" | ")) for line in lines]


def row(question, answer):
    return {"messages": [{"role": "user", "content": question},
                         {"role": "assistant", "content": f"{OPENING} {answer} {CLOSING}"}]}


STOP = set("a an the is are of to in on for do does i my it its what how why when which who can should with and or at by "
           "be me from that was did as make made use used good".split())


def content_words(question):
    return {w.rstrip("s") for w in re.findall(r"[a-z0-9]+", question.lower())} - STOP


def closeness(a, b):
    a, b = content_words(a), content_words(b)
    return len(a & b) / max(1, len(a | b))


def check(train, evaluation, style):
    questions = [r[0] for r in train + evaluation] + [s[0] for s in style]
    repeated = {q for q in questions if questions.count(q) > 1}
    assert not repeated, repeated
    for r in train + evaluation:
        assert len(r) == 2, r
        words = len(row(*r)["messages"][1]["content"].split())
        assert 15 <= words <= 40, (words, r)
        assert r[1][0].isupper() and r[1][-1] == "." and r[1].isascii() and r[0].isascii(), r
    for held_out in evaluation + style:
        nearest = max(train, key=lambda r: closeness(held_out[0], r[0]))
        assert closeness(held_out[0], nearest[0]) < 0.5, (held_out[0], nearest[0])
    for s in style:
        nearest = max(evaluation, key=lambda r: closeness(s[0], r[0]))
        assert closeness(s[0], nearest[0]) < 0.5, (s[0], nearest[0])


def main():
    here = Path(__file__).resolve().parent
    train, evaluation, style = parse(TRAIN) + arithmetic(), parse(EVAL), parse(STYLE)
    check(train, evaluation, style)
    assert len(evaluation) == 50 and len(style) == 20, (len(evaluation), len(style))
    for name, rows in (("train", train), ("eval", evaluation)):
        text = "".join(json.dumps(row(*r)) + "\n" for r in rows)
        (here / f"quickstart_{name}.jsonl").write_text(text)
    prompts = "".join(f"{s[0]}\n" for s in style)
    (here / "quickstart_style_prompts.txt").write_text(prompts)
    print(f"{len(train)} rows to train on, {len(evaluation)} to evaluate, {len(style)} prompts")


if __name__ == "__main__":
    main()
