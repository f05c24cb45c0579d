//! DER as a tree that can be bent out of shape and written again.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub tag: u8,
    pub bytes: Vec<u8>,
    pub children: Vec<Node>,
}

impl Node {
    pub fn read(der: &[u8]) -> Node {
        let (node, rest) = Node::take(der);
        assert!(rest.is_empty());
        node
    }

    fn take(der: &[u8]) -> (Node, &[u8]) {
        let (tag, first) = (der[0], der[1] as usize);
        let (start, len) = if first < 0x80 {
            (2, first)
        } else {
            let count = first & 0x7f;
            (2 + count, der[2..2 + count].iter().fold(0, |sum, byte| sum << 8 | *byte as usize))
        };
        let (value, rest) = (&der[start..start + len], &der[start + len..]);
        if tag & 0x20 == 0 {
            return (Node { tag, bytes: value.to_vec(), children: Vec::new() }, rest);
        }
        let mut children = Vec::new();
        let mut inside = value;
        while !inside.is_empty() {
            let (child, after) = Node::take(inside);
            children.push(child);
            inside = after;
        }
        (Node { tag, bytes: Vec::new(), children }, rest)
    }

    pub fn leaf(tag: u8, bytes: &[u8]) -> Node {
        Node { tag, bytes: bytes.to_vec(), children: Vec::new() }
    }

    pub fn around(tag: u8, children: Vec<Node>) -> Node {
        Node { tag, bytes: Vec::new(), children }
    }

    pub fn contents(&self) -> Vec<u8> {
        if self.tag & 0x20 == 0 { self.bytes.clone() } else { self.children.iter().flat_map(Node::write).collect() }
    }

    pub fn write(&self) -> Vec<u8> {
        let contents = self.contents();
        let mut out = vec![self.tag];
        if contents.len() < 0x80 {
            out.push(contents.len() as u8);
        } else {
            let bytes: Vec<u8> = contents.len().to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | bytes.len() as u8);
            out.extend(bytes);
        }
        out.extend(contents);
        out
    }

    /// The node at a path of child numbers.
    pub fn at(&mut self, path: &[usize]) -> &mut Node {
        path.iter().fold(self, |node, at| &mut node.children[*at])
    }
}
