(* Answers questions about sizes with the functions that Why3 extracts from split.mlw.

   A line asks: an operator, its numbers and what is given for lengths, separated by spaces. "-" is absent, "s3" the
   scalar 3, "l1,2" the list of 1 and 2, and "h" a tensor of higher rank. The answer is the sizes, or the code of the
   rule that is broken. *)

open Extracted

let code = function
  | LengthsSum -> "lengths.sum"
  | LengthsNegative -> "lengths.negative"
  | LengthsCount -> "lengths.count"
  | LengthsConflict -> "lengths.conflict"
  | LengthsMissing -> "lengths.missing"
  | LengthsRank -> "lengths.rank"
  | PartsDivisible -> "parts.divisible"
  | PartsCount -> "parts.count"
  | ChunkPositive -> "chunk.positive"
  | RemainderNegative -> "remainder.negative"
  | RemainderRepeated -> "remainder.repeated"
  | OutputsCount -> "outputs.count"
  | AxisRange -> "axis.range"

let rec of_list = function [] -> Nil | x :: rest -> Cons (x, of_list rest)
let rec to_list = function Nil -> [] | Cons (x, rest) -> x :: to_list rest

let given text =
  let rest () = String.sub text 1 (String.length text - 1) in
  match text.[0] with
  | '-' -> Absent
  | 's' -> Scalar (Z.of_string (rest ()))
  | 'h' -> Higher
  | _ -> Listed (of_list (List.map Z.of_string (List.filter (( <> ) "") (String.split_on_char ',' (rest ())))))

let answer line =
  let z = Z.of_string in
  let sizes = function
    | Sizes l -> String.concat " " ("sizes" :: List.map Z.to_string (to_list l))
    | Broken rule -> code rule
  in
  match String.split_on_char ' ' line with
  | [ "axis"; axis; rank ] -> (
      match place_of (z axis) (z rank) with At at -> "axis " ^ Z.to_string at | Nowhere rule -> code rule)
  | [ "split_13"; size; attribute; input; outputs ] ->
      sizes (split_13 (z size) (given attribute) (given input) (z outputs))
  | [ "split_18"; size; lengths; count; outputs ] ->
      sizes (split_18 (z size) (given lengths) (given count) (z outputs))
  | [ "split_to_sequence"; size; lengths; outputs ] ->
      sizes (split_to_sequence (z size) (given lengths) (z outputs))
  | [ "openvino_split"; size; count; outputs ] -> sizes (openvino_split (z size) (given count) (z outputs))
  | [ "variadic_split"; size; lengths; outputs ] -> sizes (variadic_split (z size) (given lengths) (z outputs))
  | _ -> failwith ("no such question: " ^ line)

let () = try while true do print_endline (answer (input_line stdin)) done with End_of_file -> ()
