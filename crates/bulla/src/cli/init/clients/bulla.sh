echo 'two tons of barley' | bulla put «queue» --amqp «address» --ca «ca» --user «putter» --password-file «putter's password»
bulla get «queue» --amqp «address» --ca «ca» --user «getter» --password-file «getter's password»
